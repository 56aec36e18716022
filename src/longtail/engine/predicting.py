"""Predictions of a method, without disturbing its training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from longtail.core import Method, Predict
from longtail.engine.machine import Machine


def predictor(method: Method[Any], machine: Machine) -> Predict:
    """Turn a method in eval mode into a function from images to predictions on the CPU, by head.

    Computed in fp32, whatever training computes with: logits rounded to bf16 tie, ties go to the
    lower class index, and that is often the more frequent class.
    """

    @torch.no_grad()
    def predict(image: Tensor) -> Mapping[str, Tensor]:
        image = machine.place_batch({"image": image})["image"]
        return {name: logits.float().cpu() for name, logits in method.heads(image).items()}

    return predict
