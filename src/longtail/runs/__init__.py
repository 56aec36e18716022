"""What stands behind the command line: train into a folder, load from it, evaluate it again."""

from longtail.runs.evaluating import evaluate
from longtail.runs.model import Answers, Loaded, load
from longtail.runs.training import Result, train

__all__ = ["Answers", "Loaded", "Result", "evaluate", "load", "train"]
