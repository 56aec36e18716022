"""Asking a method, without disturbing its training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from longtail.core import Method, Predict
from longtail.engine.machine import Machine


def predictor(method: Method[Any], machine: Machine) -> Predict:
    """Turn a method in eval mode into a function from images to answers on the CPU.

    A method whose answer combines several heads may have a function `heads(image)` beside `predict`: its answer as "logits", and the logits
    of each head by name, to be judged alone as well.

    In fp32, whatever training computes with: logits rounded to bf16 tie, ties go to the lower class index, and that is often the more
    frequent class.
    """

    heads = getattr(
        type(method), "heads", None
    )  # of the class: a module may be called `heads` as well

    @torch.no_grad()
    def predict(image: Tensor) -> Mapping[str, Tensor]:
        image = machine.place_batch({"image": image})["image"]
        answers = heads(method, image) if callable(heads) else {"logits": method.predict(image)}
        return {name: logits.float().cpu() for name, logits in answers.items()}

    return predict
