"""Tables and HTML pages about finished runs.

The module is callable: `longtail.report(runs)` writes a page.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from types import ModuleType


class _Report(ModuleType):
    # A function named `longtail.report` would be shadowed by this module once it is imported.
    def __call__(
        self,
        runs: str | PathLike[str] | Sequence[str | PathLike[str]],
        out: str | PathLike[str] | None = None,
        *,
        across: Sequence[str] = (),
        by: str | Sequence[str] = (),
    ) -> Path:
        """Write an HTML report about finished runs; see `longtail.report.public.report`."""
        from longtail.report.public import report

        return report(runs, out, across=across, by=by)


sys.modules[__name__].__class__ = _Report
