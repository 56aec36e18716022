"""What stands behind the command line: train into a folder, load from it, evaluate it again, export it."""

from longtail.runs.answers import Answers
from longtail.runs.evaluating import evaluate
from longtail.runs.exporting import Exported, export
from longtail.runs.model import load
from longtail.runs.predicting import Loaded
from longtail.runs.training import Result, train

__all__ = ["Answers", "Exported", "Loaded", "Result", "evaluate", "export", "load", "train"]
