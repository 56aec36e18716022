"""`longtail predict`: images in, a table out."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, Literal, TextIO

import typer
from rich.console import Console

from longtail.cli import flags, tables
from longtail.errors import LongtailError
from longtail.records.files import atomic_write


def predict(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    paths: Annotated[
        list[Path],
        typer.Argument(
            help="Images, or folders of them; folders inside count, too.", metavar="PATH"
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(help="Write to this file instead of the terminal.")
    ] = None,
    format: Annotated[
        Literal["csv", "json"] | None, typer.Option(help="As --out ends, or csv, unless given.")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="How many classes to name for each image.")] = 5,
    abstain_below: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Also abstain where the probability is lower."),
    ] = None,
    device: flags.Device = "auto",
    threads: flags.Threads = None,
    trust: flags.Trust = False,
) -> None:
    """Classify images: class, probability, the next best classes, and where not to trust the
    answer.
    """
    from longtail.runs.images import images_at

    found = images_at(paths)
    import torch

    from longtail.runs import load

    if threads is not None:
        torch.set_num_threads(threads)
    loaded, console = (
        load(run, device=device, trust=trust),
        Console(stderr=True, highlight=False, soft_wrap=True),
    )
    if found.others:
        console.print(
            f"left out, because their suffix is not that of an image: {found.others:,}",
            markup=False,
        )
    kind = format or ("json" if out is not None and out.suffix.lower() == ".json" else "csv")
    good = unsure = bad = 0
    with written(out) as file, progress(console, len(found.paths)) as advance:
        write = _Json(file) if kind == "json" else _Csv(file)
        for part in loaded.predict_files(found.paths, abstain_below=abstain_below):
            for path, reason in part.bad:
                console.print(f"skipped {path}: {reason}", markup=False, style="yellow")
            bad += len(part.bad)
            if part.predictions is not None:
                good, unsure = good + len(part.paths), unsure + sum(part.predictions.abstain)
                records = zip(part.paths, part.predictions.records(top), strict=True)
                write.rows({"path": str(path)} | record for path, record in records)
            advance(len(part.paths) + len(part.bad))
        if not good:
            raise LongtailError(
                f"expected at least one readable image, got {bad:,} that cannot be read"
            )
        write.end()
    rule = loaded.thresholds is not None or abstain_below is not None
    told = (
        f"{unsure:,} better left to a person: abstain"
        if rule
        else "nothing says when to abstain: pass --abstain-below 0.5, for instance"
    )
    console.print(f"classified: {good:,} ({told})", markup=False)
    if bad:
        console.print(
            f"skipped, because they cannot be read: {bad:,}", markup=False, style="yellow"
        )
    if out is not None:
        tables.say(f"written: {out}")
        tables.next_step(
            f"longtail serve {quote(str(run))}", f"longtail export {quote(str(run))} --to onnx"
        )


class _Csv:
    """A line for each image; the second best class is class_2, and so on; the classes of a set are
    separated by semicolons.
    """

    def __init__(self, file: TextIO) -> None:
        self.lines, self.begun = csv.writer(file, lineterminator="\n"), False

    def rows(self, found: Iterator[dict[str, Any]]) -> None:
        for row in found:
            best, _ = row.pop("top"), row.pop("level", None)
            row |= {
                f"{name}_{place}": value
                for place, own in enumerate(best[1:], start=2)
                for name, value in own.items()
            }
            if not self.begun:
                self.lines.writerow(row)
            row["abstain"] = str(row["abstain"]).lower()
            self.lines.writerow(
                ";".join(own) if isinstance(own, list) else own for own in row.values()
            )
            self.begun = True

    def end(self) -> None:
        pass


class _Json:
    """A list with one object for each image, written as it grows."""

    def __init__(self, file: TextIO) -> None:
        self.file, self.begun = file, False

    def rows(self, found: Iterator[dict[str, Any]]) -> None:
        for row in found:
            self.file.write((",\n" if self.begun else "[\n") + json.dumps(row, ensure_ascii=False))
            self.begun = True

    def end(self) -> None:
        self.file.write("\n]\n")


@contextmanager
def written(out: Path | None) -> Iterator[TextIO]:
    """A file that is whole or not there. Pipes, devices and what a link leads to are written in
    place; without `out` it is the terminal.
    """
    if out is None:
        yield sys.stdout
        return
    if out.is_dir():
        raise LongtailError(f"expected a file for --out, got a folder at {out}")
    if out.exists() and (out.is_symlink() or not out.is_file()):
        with out.open("w", encoding="utf-8", errors="surrogateescape", newline="") as file:
            yield file
        return
    with (
        atomic_write(out) as part,
        part.open("w", encoding="utf-8", errors="surrogateescape", newline="") as file,
    ):
        yield file


@contextmanager
def progress(console: Console, images: int) -> Iterator[Any]:
    """A bar on the error output, where someone is watching."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("images"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as shown:
        task = shown.add_task("", total=images, rate="")

        def advance(count: int) -> None:
            speed = shown.tasks[0].speed
            shown.update(task, advance=count, rate=f"{speed:,.0f} images/s" if speed else "")

        yield advance
