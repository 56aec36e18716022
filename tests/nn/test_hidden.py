"""Hooks inside networks: every kind has stages, a change is seen, and nothing of it stays."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from longtail.nn import Classifier, Linear, build
from longtail.nn.hidden import after, stages

NETWORKS: dict[str, tuple[dict[str, Any], int, int]] = {  # spec, stages, dimensions of a map
    "fast_cnn": ({"name": "fast_cnn", "size": 8, "width": 8}, 3, 4),
    "resnet32": ({"name": "resnet32", "size": 8, "width": 4}, 3, 4),
    "vit": ({"name": "vit_mini", "size": 8, "width": 16, "depth": 2}, 2, 3),
    "distilled vit": (
        {"name": "vit_mini", "size": 8, "width": 16, "depth": 2, "pool": "tokens"},
        2,
        3,
    ),
    "timm resnet": ({"name": "timm:resnet18", "size": 32}, 5, 4),
    "timm efficientnet": ({"name": "timm:efficientnet_b0", "size": 32}, 5, 4),
    "timm convnext": ({"name": "timm:convnext_atto", "size": 32}, 4, 4),
    "timm vit": ({"name": "timm:vit_tiny_patch16_224", "size": 32}, 12, 3),
}


@pytest.mark.parametrize("kind", NETWORKS)
@pytest.mark.parametrize("training", [True, False])
def test_a_change_after_any_stage_is_seen_and_gone_afterwards(kind: str, training: bool) -> None:
    spec, count, ndim = NETWORKS[kind]
    torch.manual_seed(0)
    network = build(spec).double().train(training)
    image = torch.rand(4, 3, spec["size"], spec["size"], dtype=torch.float64)
    keys, plain = list(network.state_dict()), network(image)
    parts, shapes = stages(network), list[int]()
    assert len(parts) == count

    def bend(rows: Tensor) -> Tensor:
        shapes.append(rows.ndim)
        return rows.square() + rows.roll(1, 0)

    for part in parts:
        with after([part], bend):
            changed = network(image)
        assert not torch.allclose(changed, plain), "the change was not applied"
    assert shapes == [ndim] * count
    with after(parts, lambda rows: rows):
        assert torch.allclose(network(image), plain)
    assert torch.equal(network(image), plain)
    assert list(network.state_dict()) == keys
    assert build(network.spec).spec == network.spec


def test_the_stages_of_a_classifier_are_its_networks() -> None:
    network = build({"name": "fast_cnn", "size": 8, "width": 8})
    assert stages(Classifier(network, Linear(32, 3))) == stages(network)


def test_gradients_flow_through_the_change() -> None:
    network = build({"name": "fast_cnn", "size": 8, "width": 8})
    weight = torch.tensor(2.0, requires_grad=True)
    with after(stages(network)[:1], lambda rows: weight * rows):
        network(torch.rand(2, 3, 8, 8)).sum().backward()
    assert weight.grad is not None
    assert weight.grad.item() != 0


def test_a_compiled_network_runs_eagerly_inside() -> None:
    network = build({"name": "fast_cnn", "size": 8, "width": 8}).eval()
    image, calls = torch.rand(2, 3, 8, 8), list[int]()
    plain = network(image)
    network.compile(backend="eager")
    assert torch.allclose(network(image), plain)

    def zero(rows: Tensor) -> Tensor:
        calls.append(1)
        return rows * 0

    for _ in range(2):
        with after(stages(network)[-1:], zero):
            assert not network(image).any()
        assert torch.allclose(network(image), plain)
    assert len(calls) == 2


def test_modules_that_are_not_called_are_named() -> None:
    with (
        pytest.raises(ValueError, match=r"1 of 1 modules were not called.*Identity"),
        after([nn.Identity()], lambda rows: rows),
    ):
        pass


def test_a_module_that_gives_no_tensor_is_refused() -> None:
    part = nn.LSTM(2, 2)
    with (
        pytest.raises(ValueError, match="the output of LSTM must be one tensor, got a tuple"),
        after([part], lambda rows: rows),
    ):
        part(torch.zeros(1, 1, 2))


def test_a_network_without_stages_is_refused() -> None:
    network = build({"name": "fast_cnn_experts", "size": 8, "width": 8})
    with pytest.raises(ValueError, match="stages of fast_cnn_experts are unknown"):
        stages(network)
