"""`longtail embed`: write the features of a dataset, which are a dataset themselves."""

from __future__ import annotations

from inspect import Parameter, signature
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import typer

from longtail.cli import flags, tables


def embed(
    data: Annotated[
        str,
        typer.Argument(help="A known name, a folder of class folders, a list or parquet files."),
    ],
    network: Annotated[
        str, typer.Option(help="timm:NAME, or the folder of a finished run that takes images.")
    ],
    out: Annotated[Path, typer.Option(help="The .npz file to write.")],
    weights: Annotated[
        str | None,
        typer.Option(
            help="A file with weights in timm's layout, timm for the pretrained ones, or random."
            " By default timm; not for a run."
        ),
    ] = None,
    pretraining: Annotated[
        str | None,
        typer.Option(
            help="What the weights were trained on; by default what timm or the run names."
        ),
    ] = None,
    size: Annotated[
        int | None,
        typer.Option(min=1, help="Side of the images in pixels; by default that of the network."),
    ] = None,
    device: flags.Device = "auto",
    threads: flags.Threads = None,
    workers: flags.Workers = 0,
    trust: flags.Trust = False,
    **values: Any,
) -> None:
    """Compute features of all images with a frozen network; any recipe then trains on them.

    Run the same command again to continue after an interruption.
    """
    from longtail.runs.embedding import embed as perform

    result = perform(
        data,
        network,
        out,
        weights=weights,
        pretraining=pretraining,
        size=size,
        device=device,
        threads=threads,
        workers=workers,
        trust=trust,
        **values,
    )
    before = "" if result.fresh else " was written before"
    tables.say(f"features: {result.path}{before} ({result.rows:,} rows of {result.dim:,} numbers)")
    tables.say(f"pretraining data of the network: {result.pretraining or 'none'}")
    tables.next_step(f"longtail train {_training(out)}", f"longtail inspect {quote(str(out))}")


def _training(path: Path) -> str:
    """A recipe for the task that a file of features is for, with its data."""
    import numpy as np

    with np.load(path, allow_pickle=False) as archive:
        arrays = {*archive.files}
    data = f"--data {quote(str(path))}"
    if {"attribute.attribute", "attribute.object"} <= arrays:
        return f"compcos {data} --network vectors"
    if "attribute.vector" in arrays:
        return f"eszsl {data}"
    if "column.domain" in arrays:
        return f"erm {data} --network vectors --hidden 256 --test-domain DOMAIN"
    return f"balanced_softmax {data} --network vectors"


def _signature() -> list[Parameter]:
    """The signature of `embed` with the data flags in place of `values`."""
    parameters = dict(signature(embed, eval_str=True).parameters)
    del parameters["values"]
    return [*parameters.values(), *flags.DATA_OPTIONS.values()]


flags.signed(embed, _signature())
