"""The operating point of a zero-shot model: the bias on the logits of its unseen classes.

A network that was trained on seen classes prefers them. A bias on the others corrects that
(calibrated stacking, Chao et al. 2016): the one with the best harmonic mean of the accuracies on
seen and unseen classes of the validation images.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from longtail.core import Scorer
from longtail.nn import Adjusted, Classifier
from longtail.records.predictions import SplitPredictions
from longtail.records.row import OperatingPoint
from longtail.scoring.zero_shot import SeenUnseenScorer


def choose_bias(
    scorer: Scorer | None, network: Classifier, predictions: Mapping[str, SplitPredictions]
) -> OperatingPoint | None:
    """The bias for unseen classes that validation chooses; None for data without such classes.

    Without validation images of unseen classes, or where none of them is ever recognised, it is the
    bias that the recipe gave the network, or 0.
    """
    if not isinstance(scorer, SeenUnseenScorer):
        return None
    before = bias_of(network, scorer.seen)
    sweep = scorer.sweep(predictions["val"]) if "val" in predictions else None
    if sweep is None or sweep.hm == 0:
        chosen_on = "recipe" if before else "nothing"
        return {"bias": before, "chosen_on": chosen_on, "harmonic_mean": None}
    bias = before + sweep.best_bias
    return {"bias": bias, "chosen_on": "validation", "harmonic_mean": sweep.hm}


def bias_of(network: Classifier, seen: NDArray[np.bool_]) -> float:
    """What a network adds to the logits of unseen classes."""
    if not isinstance(network, Adjusted) or seen.all():
        return 0.0
    return -float(network.bias[torch.from_numpy(~seen).to(network.bias.device)][0])


def with_bias(network: Classifier, seen: NDArray[np.bool_], bias: float) -> Adjusted:
    """The network with this bias on the logits of unseen classes, instead of any that it has.

    Seen classes and the temperature stay as they are.
    """
    shift, temperature = torch.zeros(network.dim), 1.0
    if isinstance(network, Adjusted):
        shift, temperature = network.bias.cpu(), float(network.temperature)
    shift = torch.where(torch.from_numpy(seen), shift, torch.tensor(-bias))
    adjusted = Adjusted(network.network, network.head, bias=shift, temperature=temperature)
    return adjusted.to(_device(network)).eval()


def shift_predictions(
    predictions: Mapping[str, SplitPredictions], seen: NDArray[np.bool_], bias: float
) -> dict[str, SplitPredictions]:
    """Predictions with a further bias on the logits of unseen classes, in every head."""
    shift = np.where(seen, 0.0, bias).astype(np.float32)
    return map_logits(predictions, lambda logits: logits + shift)


def map_logits(
    predictions: Mapping[str, SplitPredictions],
    function: Callable[[NDArray[np.float32]], NDArray[np.float32]],
) -> dict[str, SplitPredictions]:
    """Predictions with a function applied to the logits (N, C) of every head."""
    return {
        name: replace(
            result, logits={head: function(logits) for head, logits in result.logits.items()}
        )
        for name, result in predictions.items()
    }


def _device(network: Classifier) -> torch.device:
    tensors: list[Tensor] = [*network.parameters(), *network.buffers()]
    return tensors[0].device
