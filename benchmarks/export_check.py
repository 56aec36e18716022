"""How far the logits of an exported network are from the run's own, on 1,000 of its test images.

    python benchmarks/export_check.py RUN [--to onnx] [--root FOLDER_OF_THE_DATA]

The same check as `longtail export` makes; the files themselves go to a temporary folder. Writes
`benchmarks/results/speed/export_onnx.json` (or torch, timm).
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import asdict
from pathlib import Path

import measured

from longtail.records.row import read_row
from longtail.runs.exporting import IMAGES, TOLERANCE, export


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path)
    parser.add_argument("--to", choices=("onnx", "torch", "timm"), default="onnx")
    parser.add_argument("--root", type=Path)
    options = parser.parse_args()
    row = read_row(options.run)
    with tempfile.TemporaryDirectory() as folder:
        found = export(
            options.run, options.to, out=Path(folder) / options.to, root=options.root, images=IMAGES
        )
        size = sum(path.stat().st_size for path in found.folder.iterdir())
    agreement = asdict(found.agreement)
    source = agreement.pop("source")
    name = (
        f"{row['recipe']} with {row['keywords'].get('network')} on {row['data']['name']}, {source}"
    )
    figures = {
        name: {**agreement, "difference_allowed": TOLERANCE, "megabytes": round(size / 1e6, 1)}
    }
    question = (
        f"Does the network that was exported to {options.to} answer as the run's? (Difference in"
        " parts of the largest logit.)"
    )
    command = f"python benchmarks/export_check.py RUN --to {options.to}"
    measured.write(
        f"export_{options.to}",
        figures,
        plan=f"export_{options.to}",
        question=question,
        command=command,
    )


if __name__ == "__main__":
    main()
