"""Asking a method, without disturbing its training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from longtail.core import Method, Predict
from longtail.engine.machine import Machine


@runtime_checkable
class ManyHeads(Protocol):
    """A method whose prediction combines several heads that are worth judging alone."""

    def heads(self, image: Tensor) -> Mapping[str, Tensor]:
        """What `predict` answers as "logits", and the logits of each head by name."""
        ...


def predictor(method: Method, machine: Machine) -> Predict:  # type: ignore[type-arg]
    """Turn a method in eval mode into a function from images to answers on the CPU.

    In fp32, whatever training computes with: logits rounded to bf16 tie, ties go to the lower class index, and that is often the more
    frequent class.
    """

    @torch.no_grad()
    def predict(image: Tensor) -> Mapping[str, Tensor]:
        image = machine.receive({"image": image})["image"]
        answers = method.heads(image) if isinstance(method, ManyHeads) else {"logits": method.predict(image)}
        return {name: logits.float().cpu() for name, logits in answers.items()}

    return predict
