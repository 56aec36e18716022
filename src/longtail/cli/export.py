"""`longtail export`: write a network for use without longtail."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated, Literal

import typer

from longtail.cli import flags, tables
from longtail.records.layout import ExportFolder


def export(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    to: Annotated[
        Literal["onnx", "torch", "timm"],
        typer.Option(help="ONNX, a torch.export program, or a folder that timm loads."),
    ],
    out: Annotated[
        Path | None, typer.Option(help="Output folder; by default export/TO in the run folder.")
    ] = None,
    root: Annotated[
        Path | None,
        typer.Option(help="Where the run's data is now; its test images verify the result."),
    ] = None,
    images: Annotated[int, typer.Option(min=1, help="How many images to verify with.")] = 1000,
    trust: flags.Trust = False,
) -> None:
    """Write a run's network for use without longtail, and verify that its predictions agree."""
    from longtail.runs.exporting import TOLERANCE
    from longtail.runs.exporting import export as perform

    tables.say(f"writing {run} for {to}, and verifying it ...")
    result = perform(run, to, out=out, root=root, images=images, trust=trust)
    agreement = result.agreement
    same = (
        f"{agreement.changed} predictions differ, all of them ties"
        if agreement.changed
        else "all predictions equal"
    )
    tables.say(
        f"agrees with the run on {agreement.images:,} {agreement.source}: largest difference"
        f" {agreement.difference:.1e} of the largest logit (allowed {TOLERANCE:g}), {same}"
    )
    tables.say(
        f"predict.py agrees from file to logits on {result.program.images:,}"
        f" {result.program.source}: largest difference {result.program.difference:.1e}"
    )
    if agreement.source == "random images":
        tables.warn(
            "the run's data is missing, so random images were used: pass --root to verify with"
            " its test images"
        )
    tables.say(f"written: {result.folder} ({', '.join(result.files)})")
    tables.next_step(
        f"cat {quote(str(ExportFolder(result.folder).readme))}", f"longtail serve {quote(str(run))}"
    )
