"""Train into a run folder, load its network, evaluate it again, export it, compute features."""

from longtail.runs.embedding import Features, embed
from longtail.runs.evaluating import evaluate
from longtail.runs.exporting import Exported, export
from longtail.runs.model import load
from longtail.runs.predicting import Loaded
from longtail.runs.predictions import Predictions
from longtail.runs.training import Result, train

__all__ = [
    "Exported",
    "Features",
    "Loaded",
    "Predictions",
    "Result",
    "embed",
    "evaluate",
    "export",
    "load",
    "train",
]
