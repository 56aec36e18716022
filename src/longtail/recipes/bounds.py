"""The range of every numeric keyword of our recipes, in one place.

A value outside cannot mean anything, or would need more memory than any machine has. A recipe may
be narrower: then it says so itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from longtail.errors import LongtailError


@dataclass(frozen=True)
class Range:
    """The values from `low` to `high`; `low` itself belongs to it unless `above`."""

    low: float
    high: float = math.inf
    above: bool = False

    def __contains__(self, value: float) -> bool:
        return (value > self.low if self.above else value >= self.low) and value <= self.high

    def __str__(self) -> str:
        low = f"above {self.low:g}" if self.above else f"of {self.low:g} or more"
        high = f"of at most {self.high:,.0f}"
        if self.low == -math.inf:
            return high
        return low if self.high == math.inf else f"{low} and {high}"


SHARE, NOT_NEGATIVE, POSITIVE = Range(0, 1), Range(0), Range(0, above=True)
ANY = Range(-math.inf)  # but for nan and infinity, which no keyword takes
COUNT, WIDTH, LAYERS = Range(1, 1e7), Range(1, 65_536), Range(1, 256)
# Recipes and networks check the lower end themselves, with more precise messages.
FEW, LONG = Range(-math.inf, 1e7), Range(-math.inf, 1e6)
NARROW, SHALLOW, SMALL = (Range(-math.inf, high) for high in (65_536, 256, 8_192))
PART = Range(-math.inf, 1)

BOUNDS: Mapping[str, Range] = {
    **dict.fromkeys(("lr", "pretrain_lr", "probe_lr", "classifier_lr"), POSITIVE),
    **dict.fromkeys(("temperature", "cosine_scale", "init_std", "style_alpha"), POSITIVE),
    **dict.fromkeys(("weight_decay", "mixup", "cutmix", "layer_scale"), NOT_NEGATIVE),
    **dict.fromkeys(("rho", "teacher_rho", "margin", "alpha"), NOT_NEGATIVE),
    **dict.fromkeys(("penalty", "penalty_weight", "loss_scale", "trade_off"), NOT_NEGATIVE),
    **dict.fromkeys(("plain_weight", "batchformer_weight", "share", "reversal"), NOT_NEGATIVE),
    **dict.fromkeys(("batchformer_lr_scale", "backbone_lr_scale"), NOT_NEGATIVE),
    **dict.fromkeys(("gamma", "lambda_", "lr_decay", "vector_norm"), NOT_NEGATIVE),
    **dict.fromkeys(("feasibility_margin", "reversal_speed", "tolerance_ratio"), NOT_NEGATIVE),
    **dict.fromkeys(("bias", "diversity", "tau"), ANY),
    **dict.fromkeys(("warmup_start", "anneal", "blur", "style_probability"), SHARE),
    **dict.fromkeys(("class_temperature", "dropout", "graph_dropout"), SHARE),
    **dict.fromkeys(("embedder_dropout", "feasibility_ramp", "momentum"), SHARE),
    **dict.fromkeys(("warmup", "defer", "release", "mix_until", "lr_drop", "erase"), SHARE),
    **dict.fromkeys(("ema", "smoothing", "mask", "drop_path", "layer_decay"), PART),
    **dict.fromkeys(("critic_steps", "n_converge", "n_tolerance"), COUNT),
    "synthetic": Range(1, 10_000),  # all are generated at once
    **dict.fromkeys(("dim", "bottleneck", "comparator", "critic", "generator"), WIDTH),
    **dict.fromkeys(("embedding", "graph_width", "head_width"), WIDTH),
    **dict.fromkeys(("noise", "word_dim", "embedder"), WIDTH),
    **dict.fromkeys(("batchformer_layers", "projector_layers", "style_stages"), LAYERS),
    **dict.fromkeys(("epochs", "teacher_epochs", "pretrain_epochs"), FEW),
    **dict.fromkeys(("probe_epochs", "retrain_epochs", "classifier_epochs"), FEW),
    **dict.fromkeys(("batch", "accumulate", "pretrain_batch", "pretrain_accumulate"), FEW),
    **dict.fromkeys(("probe_batch", "neighbours", "steps", "repeats"), FEW),
    **dict.fromkeys(("norm_splits", "images", "teacher_repeats"), FEW),
    "queue": LONG,  # every row of a batch has a logit for each
    **dict.fromkeys(("hidden", "decoder_width"), NARROW),
    **dict.fromkeys(("experts", "decoder_depth", "decoder_heads"), SHALLOW),
    **dict.fromkeys(("size", "pretrain_size", "teacher_size", "patch"), SMALL),
}


def check_bounds(keywords: Mapping[str, Any]) -> None:
    """Raise for the first keyword with a number that is outside its range.

    >>> check_bounds({"lr": 0.1, "dim": None, "loss": "ce"})
    >>> check_bounds({"lr": 0.0})
    Traceback (most recent call last):
    longtail.errors.LongtailError: expected --lr above 0, got 0: pass another number
    """
    for name, value in keywords.items():
        values = value if isinstance(value, list | tuple) else [value]
        for number in values:
            is_number = isinstance(number, int | float) and not isinstance(number, bool)
            if is_number and name in BOUNDS and number not in BOUNDS[name]:
                raise LongtailError(
                    f"expected --{name.replace('_', '-')} {BOUNDS[name]}, got {number:,g}:"
                    " pass another number"
                )
