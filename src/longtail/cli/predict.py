"""`longtail predict`: classify images into a CSV or JSON table."""

from __future__ import annotations

import csv
import io
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
from longtail.errors import LongtailError, printable
from longtail.records.files import atomic_write


def predict(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    paths: Annotated[
        list[Path],
        typer.Argument(
            help="Images, or folders, which are searched recursively; or an .npz of features.",
            metavar="PATH",
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(help="Write to this file instead of the terminal.")
    ] = None,
    format: Annotated[
        Literal["csv", "json"] | None,
        typer.Option(help="By default from the suffix of --out, or csv."),
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Number of classes per image.")] = 5,
    abstain_below: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Also abstain below this probability."),
    ] = None,
    classes: Annotated[
        Path | None,
        typer.Option(help="Zero-shot: further classes, as a .csv or .npz of their descriptions."),
    ] = None,
    bias: Annotated[
        float | None,
        typer.Option(help="Zero-shot: a number to add to the logits of unseen classes."),
    ] = None,
    device: flags.Device = "auto",
    threads: flags.Threads = None,
    trust: flags.Trust = False,
) -> None:
    """Classify images: class, probability, the next best classes, and whether to abstain."""
    from longtail.runs.images import ImageFiles, images_at

    features = len(paths) == 1 and paths[0].suffix.lower() == ".npz"
    files = ImageFiles((paths[0],), 0) if features else images_at(paths)
    import torch

    from longtail.runs import load
    from longtail.runs.new_classes import add_classes, set_bias

    if threads is not None:
        torch.set_num_threads(threads)
    loaded, console = (
        load(run, device=device, trust=trust),
        Console(stderr=True, highlight=False, soft_wrap=True),
    )
    if classes is not None:
        loaded = add_classes(loaded, classes)
    if bias is not None:
        loaded = set_bias(loaded, bias)
    if files.others:
        console.print(
            f"ignored files without an image suffix: {files.others:,}",
            markup=False,
        )
    kind = format or ("json" if out is not None and out.suffix.lower() == ".json" else "csv")
    good = unsure = bad = 0
    with written(out) as file, progress(console, len(files.paths)) as advance:
        write = _Json(file) if kind == "json" else _Csv(file)
        parts = (
            [loaded.predict_features(paths[0], abstain_below=abstain_below)]
            if features
            else loaded.predict_files(files.paths, abstain_below=abstain_below)
        )
        for part in parts:
            for path, reason in part.bad:
                line = printable(f"skipped {path}: {reason}")
                console.print(line, markup=False, style="yellow")
            bad += len(part.bad)
            if part.predictions is not None:
                good, unsure = good + len(part.paths), unsure + sum(part.predictions.abstain)
                records = zip(part.paths, part.predictions.records(top), strict=True)
                write.rows({"path": str(path)} | record for path, record in records)
            advance(len(part.paths) + len(part.bad))
        if not good:
            raise LongtailError(f"none of the {bad:,} images can be read: see the reasons above")
        write.end()
    rule = loaded.thresholds is not None or abstain_below is not None
    note = (
        f"{unsure:,} with abstain: leave these to a person"
        if rule
        else "no threshold for abstaining: pass --abstain-below 0.5, for instance"
    )
    console.print(f"classified: {good:,} ({note})", markup=False)
    if bad:
        console.print(f"skipped unreadable images: {bad:,}", markup=False, style="yellow")
    if out is not None:
        tables.say(f"written: {out}")
        tables.next_step(
            f"longtail serve {quote(str(run))}", f"longtail export {quote(str(run))} --to onnx"
        )


class _Csv:
    """One line per image; class_2 is the second best class, and so on.

    The classes of a prediction set are separated by semicolons; a name that contains one is quoted.
    """

    def __init__(self, file: TextIO) -> None:
        self.lines, self.started = csv.writer(file, lineterminator="\n"), False
        # A path may contain commands for a terminal; in a file or a pipe it stays as it is.
        self.clean = printable if file.isatty() else str

    def rows(self, records: Iterator[dict[str, Any]]) -> None:
        from longtail.report.formats import cell

        for row in records:
            best, _ = row.pop("top"), row.pop("level", None)
            row |= {
                f"{name}_{place}": value
                for place, entry in enumerate(best[1:], start=2)
                for name, value in entry.items()
            }
            if not self.started:
                self.lines.writerow(row)
            row["abstain"] = str(row["abstain"]).lower()
            row["path"] = _relative(row["path"])
            self.lines.writerow(
                self.clean(cell(joined(value) if isinstance(value, list) else value))
                for value in row.values()
            )
            self.started = True

    def end(self) -> None:
        pass


def _relative(path: str) -> str:
    """The same path, in a form that no spreadsheet takes for a formula."""
    from longtail.report.formats import cell

    return path if cell(path) == path else f"./{path}"


def joined(names: list[str]) -> str:
    """Names separated by semicolons, quoted as in CSV where a name contains one.

    >>> joined(["a", "b;c"])
    'a;"b;c"'
    """
    from longtail.report.formats import cell

    text = io.StringIO()
    csv.writer(text, delimiter=";", lineterminator="").writerow(map(cell, names))
    return text.getvalue()


class _Json:
    """A list with one object per image, written incrementally."""

    def __init__(self, file: TextIO) -> None:
        self.file, self.started = file, False

    def rows(self, records: Iterator[dict[str, Any]]) -> None:
        for row in records:
            # In a terminal, control characters beyond ASCII are escaped, too
            text = json.dumps(row, ensure_ascii=self.file.isatty())
            self.file.write((",\n" if self.started else "[\n") + text)
            self.started = True

    def end(self) -> None:
        self.file.write("\n]\n")


@contextmanager
def written(out: Path | None) -> Iterator[TextIO]:
    """Open `out` for an atomic write, or stdout without it.

    Pipes and devices are written as a stream; a link stays, and its target is replaced.
    """
    if out is None:
        yield sys.stdout
        return
    if out.is_dir():
        raise LongtailError(f"--out must be a file, got the folder {out}")
    if out.exists() and not out.is_file():
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
    """A progress bar on stderr, if that is a terminal."""
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
