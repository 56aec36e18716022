"""What was measured, as one JSON file for each question in `benchmarks/results/speed/`."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from longtail.runs.identity import versions

RESULTS = Path(__file__).parent / "results" / "speed"


def write(
    name: str,
    figures: Mapping[str, Any],
    *,
    question: str,
    command: str,
    plan: str = "speed",
    reason: str = "",
    threads: int | None = None,
) -> None:
    """Write the figures of a question with the command, machine, versions and commit behind them,
    and print them. `reason` says why an aim is not reached.
    """
    machine = {"cores": os.cpu_count(), "threads": threads, "kind": platform.machine()}
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=RESULTS.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    complete = {
        "plan": plan,
        "question": question,
        **({"reason": reason} if reason else {}),
        "command": command,
        "figures": figures,
        "machine": {key: value for key, value in machine.items() if value is not None},
        "versions": versions(),
        "commit": commit.stdout.strip() or None,
    }
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(complete, indent=1) + "\n", encoding="utf-8")
    print(f"{name}: {json.dumps(figures, indent=1)}", flush=True)
