"""`longtail export`: a network for people who do not have longtail."""

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
        typer.Option(help="onnx, a torch.export program, or a folder for timm."),
    ],
    out: Annotated[
        Path | None, typer.Option(help="The folder to write; export/TO in the run's unless given.")
    ] = None,
    root: Annotated[
        Path | None,
        typer.Option(help="Where the run's data lies now; its test images check the result."),
    ] = None,
    images: Annotated[int, typer.Option(min=1, help="How many images to check with.")] = 1000,
    trust: flags.Trust = False,
) -> None:
    """Write a run's network for use without longtail, and check that it answers as ours does."""
    from longtail.runs.exporting import TOLERANCE
    from longtail.runs.exporting import export as perform

    tables.say(f"writing {run} for {to}, and checking it ...")
    found = perform(run, to, out=out, root=root, images=images, trust=trust)
    agreement = found.agreement
    same = (
        f"{agreement.changed} other predictions, all of them ties"
        if agreement.changed
        else "no other answer"
    )
    tables.say(
        f"agrees with ours on {agreement.images:,} {agreement.source}: largest difference"
        f" {agreement.difference:.1e} of the largest logit (allowed {TOLERANCE:g}), {same}"
    )
    if agreement.source == "random images":
        tables.warn(
            "the run's data is not here, so random images were used: pass --root to check with its"
            " test images"
        )
    tables.say(f"written: {found.folder} ({', '.join(found.files)})")
    tables.next_step(
        f"cat {quote(str(ExportFolder(found.folder).readme))}", f"longtail serve {quote(str(run))}"
    )
