"""Predicting with a method: float32 on the CPU, every head by name, no gradient."""

from collections.abc import Mapping

import torch
from torch import Tensor
from toys import ToyMethod

from longtail.engine.machine import Machine
from longtail.engine.predicting import predictor


class TwoHeads(ToyMethod):
    def heads(self, image: Tensor) -> Mapping[str, Tensor]:
        logits = self.predict(image)
        return {"logits": logits, "first": 2 * logits}


def test_predictions_are_logits_without_gradient() -> None:
    method, image = ToyMethod().eval(), torch.randn(4, 6)
    predictions = predictor(method, Machine())(image)
    assert list(predictions) == ["logits"]
    assert not predictions["logits"].requires_grad
    assert torch.equal(predictions["logits"], method.predict(image).detach())


def test_every_head_predicts() -> None:
    method, image = TwoHeads().eval(), torch.randn(4, 6)
    predictions = predictor(method, Machine())(image)
    assert torch.equal(predictions["first"], 2 * predictions["logits"])


def test_a_module_that_is_called_heads_does_not_predict() -> None:
    method, image = ToyMethod().eval(), torch.randn(4, 6)
    method.heads = torch.nn.ModuleList([method.head])  # type: ignore[method-assign]
    assert list(predictor(method, Machine())(image)) == ["logits"]


def test_predictions_are_float32_whatever_the_method_computes_in() -> None:
    method = ToyMethod().double().eval()
    assert (
        predictor(method, Machine())(torch.randn(4, 6, dtype=torch.float64))["logits"].dtype
        == torch.float32
    )


class Watched(ToyMethod):
    def predict(self, image: Tensor) -> Tensor:
        assert not torch.is_autocast_enabled("cpu"), (
            "logits in bf16 tie, and ties go to the more frequent class"
        )
        return super().predict(image)


def test_predictions_are_computed_in_float32_whatever_training_computes_in() -> None:
    assert predictor(Watched().eval(), Machine(precision="bf16"))(torch.randn(4, 6))[
        "logits"
    ].shape == (4, 3)
