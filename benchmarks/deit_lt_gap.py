"""Draw how far a student is from its teacher, epoch by epoch: docs/images/deit-lt-gap.svg.

    python benchmarks/deit_lt_gap.py

Balanced accuracy on validation, minus the teacher's after its last epoch, of the student, of each
of its tokens alone, and of the same transformer without a teacher; from the results of the plan
deit_lt_cifar10_lt, which say what the teacher had reached.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from longtail.report.svg import Line, line_file

HERE = Path(__file__).parent
PICTURE = HERE.parent / "docs" / "images" / "deit-lt-gap.svg"
LINES = {
    "student": ("student", "student", "val/balanced"),
    "CLS alone": ("student", "student", "val/cls/balanced"),
}
LINES |= {
    "DIST alone": ("student", "student", "val/dist/balanced"),
    "no teacher": ("vit", "train", "val/balanced"),
}


def gaps(results: Path, *, seed: int = 0) -> dict[str, Line]:
    """For each line, (epoch, points above the teacher)."""

    def read(arm: str) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(
            (results / "deit_lt_cifar10_lt" / f"{arm}-seed{seed}.json").read_text(encoding="utf-8")
        )
        return content

    (teacher,) = read("student")["begun_with"].values()
    found: dict[str, Line] = {}
    for name, (arm, stage, metric) in LINES.items():
        epochs = read(arm)["curve"][stage]
        found[name] = [
            (line["epoch"], 100 * (line[metric] - teacher)) for line in epochs if metric in line
        ]
    return found


def main() -> None:
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    PICTURE.write_text(
        line_file(gaps(HERE / "results"), x="epoch", y="points above the teacher"), encoding="utf-8"
    )
    print(PICTURE)


if __name__ == "__main__":
    main()
