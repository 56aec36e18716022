"""Analyses of finished runs, written into their folders."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from longtail.analysis.distillation import analyse_tokens
from longtail.analysis.writing import analyse
from longtail.core import Method
from longtail.data.dataset import Dataset
from longtail.naming import unknown
from longtail.records.layout import ArraysName, RunFolder
from longtail.runs.restore import restore_method


def analyse_run(run: str | Path, analysis: str, **restore: Any) -> None:
    """Write the arrays of an analysis into the folder of a finished run, unless they are there.

    `analysis` is "saliency" (`longtail.analysis.analyse`) or "tokens" (`analyse_tokens`, for
    transformers). `restore` has keywords of `restore_method`, such as `root`.
    """
    if analysis not in ANALYSES:
        raise unknown("analysis", analysis, ANALYSES)
    arrays, write = ANALYSES[analysis]
    files = RunFolder(Path(run)).analysis
    if not files.arrays(arrays).exists():
        method, data = restore_method(run, **restore)
        method.eval()
        write(method, data, files.path)


def _tokens(method: Method[Any], data: Dataset, folder: Path) -> None:
    analyse_tokens(method.deploy(), data, folder)


ANALYSES: Mapping[str, tuple[ArraysName, Callable[[Method[Any], Dataset, Path], object]]] = {
    "saliency": ("gradcam", analyse),
    "tokens": ("rank", _tokens),
}
"""An analysis -> the arrays that it writes last or alone, and the function that writes them."""
