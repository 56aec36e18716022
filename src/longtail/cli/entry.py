"""The command `longtail` until its modules are imported: Ctrl-C ends it without a traceback."""

from __future__ import annotations

import sys


def run() -> None:
    """Import the command line and run it."""
    try:
        from longtail.cli.main import run as perform
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        sys.exit(130)
    perform()
