"""Tables and pages about finished runs. `longtail.report(runs)` writes a page: the module is
callable.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from types import ModuleType


class _Report(ModuleType):
    # A function `longtail.report` would be replaced by this module as soon as anything imports it.
    def __call__(
        self,
        runs: str | PathLike[str] | Sequence[str | PathLike[str]],
        out: str | PathLike[str] | None = None,
        *,
        across: Sequence[str] = (),
    ) -> Path:
        """Write one HTML file about finished runs; see `longtail.report.public.report`."""
        from longtail.report.public import report

        return report(runs, out, across=across)


sys.modules[__name__].__class__ = _Report
