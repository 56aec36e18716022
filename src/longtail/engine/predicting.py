"""Predictions of a method or a network during and after training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from longtail.core import Method, Predict
from longtail.engine.machine import Machine


def predictor(
    model: Method[Any] | Callable[[Tensor], Mapping[str, Tensor]], machine: Machine
) -> Predict:
    """Turn a model in eval mode into a function from images to float32 outputs on the CPU, by name.

    Computed in fp32, whatever the precision of training: logits rounded to bf16 tie, ties go to the
    lower class index, and that is often the more frequent class.

    Args:
        model: A method, of which `heads` is called, or a function from images (N, 3, size, size) to
            outputs by name, such as `Classifier.heads`.
        machine: Where the model is, and where images are moved.
    """
    heads = model.heads if isinstance(model, Method) else model

    @torch.no_grad()
    def predict(image: Tensor) -> Mapping[str, Tensor]:
        image = machine.place_batch({"image": image})["image"]
        return {name: values.float().cpu() for name, values in heads(image).items()}

    return predict
