"""`longtail inspect DATA`: what to know, and what to mend, before training."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from inspect import Parameter, signature
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from longtail.cli import flags, tables
from longtail.recipes.auto import MAX_BALANCED_RATIO

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from longtail.data.dataset import Dataset

HISTOGRAM = 30  # bars; beyond that, the head and the tail of the classes are shown
BAR = 36  # characters
SHOWN = 10  # of a list; files have all
STEPS = (0.1, 0.2, 0.3)  # how far a recall is known
# Pictures on the page
PAGE = {"groups": 48, "copies": 2, "classes": 8, "examples": 6, "unusual": 8}


def inspect(
    data: Annotated[
        str, typer.Argument(help="A known name, a folder of class folders, or a list file.")
    ],
    html: Annotated[
        Path | None, typer.Option(help="Also write a page with pictures to this file.")
    ] = None,
    json: Annotated[
        Path | None, typer.Option(help="Also write everything to this file, every image named.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Only count: read no image, look for no duplicates.")
    ] = False,
    **values: Any,
) -> None:
    """Look at data before training: imbalance, what cannot be evaluated, duplicates, unreadable and
    odd images, and what to do.
    """
    from longtail.data.inspect.survey import survey, unread
    from longtail.data.open import assemble, find
    from longtail.data.request import DataRequest

    request = DataRequest.from_flags(data, values)
    source = find(request)
    seen = None if quick else survey(source)
    dataset = assemble(
        unread(source) if seen is None else seen.source,
        protocol=request.protocol,
        split_seed=request.split_seed,
    )
    unreadable, emptied = ((), ()) if seen is None else (seen.unreadable, seen.emptied)
    same = "".join(f" {shlex.quote(word)}" for word in request.words())
    found = findings(
        dataset, f"{shlex.quote(data)}{same}", unreadable=unreadable, emptied=emptied, quick=quick
    )
    show(found)
    if json is not None:
        write(json, to_json(found))
    if html is not None:
        from longtail.report.inspection import page

        write(html, page(found, {} if quick else pictures(dataset, found)))
    tables.next_step(
        *found["commands"],
        *([] if html or quick else [f"longtail inspect {found['data']} --html inspection.html"]),
    )


def _signature() -> list[Parameter]:
    """That of `inspect`, with the flags of the data in the place of `values`."""
    known = signature(inspect, eval_str=True).parameters
    return [*(own for name, own in known.items() if name != "values"), *flags.DATA_OPTIONS.values()]


flags.signed(inspect, _signature())


def findings(
    dataset: Dataset,
    data: str,
    *,
    unreadable: Sequence[Mapping[str, str]] = (),
    emptied: Sequence[str] = (),
    quick: bool = False,
) -> dict[str, Any]:
    """Everything that is shown and written: the facts, the files, the duplicates, what to do.
    `data` is how it was asked for.
    """
    from longtail.data.inspect.duplicates import duplicates
    from longtail.data.inspect.facts import facts
    from longtail.data.inspect.survey import files

    found = {
        "format": 1,
        "data": data,
        **facts(dataset),
        "unreadable": list(unreadable),
        "emptied": list(emptied),
    }
    if quick:
        found |= {"hash": None, "files": None, "duplicates": None, "examples": {}}
    else:
        found |= {
            "files": files(dataset),
            "duplicates": duplicates(dataset),
            "examples": examples(dataset, found),
        }
    found["known"] = _known(found["classes"])
    skip = " --on-bad-image skip" if unreadable else ""
    second = "balanced_softmax" if found["imbalance"] > MAX_BALANCED_RATIO else "cross_entropy"
    found["commands"] = [
        f"longtail train {recipe} --data {data}{skip}" for recipe in ("auto", second)
    ]
    if dataset.has_vectors:
        found["commands"] = [f"longtail train {second} --data {data} --network vectors"]
    found["advice"] = advice(found)
    return found


def advice(found: Mapping[str, Any]) -> list[str]:
    """What follows from the findings, the gravest first; a sentence each."""
    said, twice, images = [], found["duplicates"], found["images"]
    if found["emptied"]:
        said.append(
            f"No training image of {_some(found['emptied'])} can be read. Training refuses that:"
            " repair the images or remove the classes."
        )
    if found["unreadable"]:
        count = len(found["unreadable"])
        said.append(
            f"{_images(count)} cannot be read. Repair or remove them, or train without them:"
            " --on-bad-image skip."
        )
    if twice and twice["conflicts"]:
        said.append(
            f"{_are(twice['conflicts'], 'picture')} under two labels: one of them is wrong, and"
            " there may be more wrong labels that no copy gives away. Correct them first."
        )
    if twice and (leaked := twice["leaked"]):
        share = leaked / images["test"]
        said.append(
            f"{_images(leaked)} of the test set ({share:.2%}) {'is' if leaked == 1 else 'are'} also"
            " in training or validation, so accuracy will be too high by up to that. Remove the"
            " copies from one side; of a public benchmark, know it."
        )
    if twice and twice["surplus"] and not any(twice["across"].values()):
        said.append(
            f"{_are(twice['surplus'], 'image')} copies of others within a split. They count more"
            " than they should; remove them."
        )
    if not images["test"]:
        said.append(
            "There are no test images. Nothing can be said about how good a classifier is: add"
            " some."
        )
    elif found["not_tested"]:
        names = found["not_tested"]
        said.append(
            f"{_are(len(names), 'class')} without a test image ({_some(names)}): trained, but never"
            " evaluated. Collect images."
        )
    few = [own for own in found["classes"] if own["test"] and own["known_to"] > STEPS[-1]]
    if few:
        least = min(few, key=lambda own: own["test"])
        said.append(
            f"{len(few)} of {len(found['classes'])} classes have too few test images to be judged"
            f" one by one: {least['name']} has {least['test']}, so its recall is known to about"
            f" ±{least['known_to']:.1f}. Judge groups of classes; collect more if you can."
        )
    if found["known_to"] is not None and images["test"]:
        said.append(
            f"Balanced accuracy on this test set is known to about ±{100 * found['known_to']:.1f}"
            " points: smaller differences between two trainings mean little, unless they are"
            " compared image by image (longtail compare)."
        )
    if found["imbalance"] <= MAX_BALANCED_RATIO:
        said.append("The classes are about equally large: plain training is enough.")
    elif found["smallest"] < 5:
        said.append(
            "Some classes have fewer than 5 training images. Networks that were trained before on"
            " other images help there most."
        )
    return said


def examples(dataset: Dataset, found: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Some images of each of the smallest classes, the smallest first."""
    from longtail.data.inspect.survey import image

    tail = min(PAGE["classes"], -(-len(dataset.classes) // 3))
    smallest = sorted(
        range(len(dataset.classes)), key=lambda i: (found["classes"][i]["source"], i)
    )[:tail]
    return {
        dataset.classes[label]: [
            image(dataset, split, int(row))
            for split in ("train", "val", "test")
            for row in (
                (getattr(dataset, split).target == label).nonzero().ravel()[: PAGE["examples"]]
            )
        ][: PAGE["examples"]]
        for label in smallest
    }


def pictures(dataset: Dataset, found: Mapping[str, Any]) -> dict[str, NDArray[np.uint8]]:
    """The pictures that the page shows, small, by split and row: copies, odd ones, and examples of
    the smallest classes.
    """
    import numpy as np

    from longtail.data.inspect.survey import SurveyedImages

    wanted = [
        one
        for own in found["duplicates"]["groups"][: PAGE["groups"]]
        for one in own["images"][: PAGE["copies"]]
    ]
    wanted += [
        one
        for own in found["files"]["unusual"].values()
        for one in own["images"][: PAGE["unusual"]]
    ]
    wanted += [one for own in found["examples"].values() for one in own]
    taken: dict[str, NDArray[np.uint8]] = {}
    for one in wanted:
        store = getattr(dataset, one["split"]).inputs
        assert isinstance(store, SurveyedImages)
        taken[f"{one['split']}/{one['row']}"] = np.asarray(store.small(one["row"], 96))
    return taken


def to_json(found: Mapping[str, Any]) -> str:
    """Everything as JSON."""
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


def write(path: Path, text: str) -> None:
    """Write a file, and say so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", errors="backslashreplace")
    tables.say(f"written: {path}")


def show(found: Mapping[str, Any]) -> None:
    """Print the findings."""
    images, effective = found["images"], found["effective"]
    identity = f", split {found['hash'][:12]}" if found["hash"] else ""
    tables.say(f"{found['name']}: {len(found['classes'])} classes, {found['size']} px{identity}")
    tables.say(
        f"images: {images['train']:,} train, {images['val']:,} validation, {images['test']:,} test"
        f" ({found['protocol']} protocol)"
    )
    tables.say(
        f"largest class {found['largest']:,}, smallest {found['smallest']:,}: imbalance"
        f" {found['imbalance']:.1f}, Gini {found['gini']:.2f}, as hard to guess as"
        f" {found['equal_classes']:.1f} equal classes"
    )
    tables.say(
        f"effective numbers (beta {effective['beta']:g}): {effective['largest']:,.0f} to"
        f" {effective['smallest']:,.1f}, imbalance {effective['imbalance']:.1f}"
    )
    groups = ", ".join(
        f"{name} {own['classes']} classes ({own['images']:,} images)"
        for name, own in found["groups"]["members"].items()
    )
    tables.say(f"groups by {found['groups']['rule']}: {groups}\n")
    tables.draw(histogram(found["classes"], largest=found["largest"]))
    _show_evaluation(found)
    if found["files"] is not None:
        _show_files(found["files"])
        _show_duplicates(found["duplicates"])
    if found["unreadable"]:
        tables.say(f"unreadable: {_images(len(found['unreadable']))}")
        for own in found["unreadable"][: 2 * SHOWN]:
            tables.say(f"  {own['image']}: {own['reason']}")
        _rest(len(found["unreadable"]), 2 * SHOWN)
    for mark in found["caveats"]:
        tables.say(f"note: {mark}")
    for warning in found["warnings"]:
        tables.say(f"warning: {warning}")
    if found["files"] is None:
        tables.say(
            "no image was read: without --quick, duplicates and unreadable images are looked for as"
            " well"
        )
    tables.say("\nwhat to do")
    for number, sentence in enumerate(found["advice"] or ["Nothing stands in the way."], start=1):
        tables.say(f"  {number}. {sentence}")
    tables.say("")


def histogram(classes: Sequence[Mapping[str, Any]], *, largest: int) -> Table:
    """Bars of the classes, the largest first."""
    ordered = sorted(classes, key=lambda own: -own["source"])
    half = HISTOGRAM // 2
    shown = ordered if len(ordered) <= HISTOGRAM else [*ordered[:half], None, *ordered[-half:]]
    table = Table(box=None, padding=(0, 1), header_style="dim")
    for name in ("class", "", "all", "train", "val", "test", "group", "recall"):
        table.add_column(
            name, justify="left" if name in ("class", "", "group") else "right", no_wrap=True
        )
    colours = {"many": "green", "medium": "yellow", "few": "red"}
    for own in shown:
        if own is None:
            table.add_row(Text(f"... {len(ordered) - 2 * half} more", style="dim"))
            continue
        bar = Text(
            "█" * max(round(BAR * own["source"] / largest), 1), style=colours.get(own["group"], "")
        )
        numbers = (f"{own[name]:,}" for name in ("source", "train", "val", "test"))
        known = "unknown" if own["known_to"] is None else f"±{own['known_to']:.2f}"
        table.add_row(Text(own["name"], overflow="ellipsis"), bar, *numbers, own["group"], known)
    return table


def _known(classes: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """How many classes have their recall known to which distance."""
    bounds = [0.0, *STEPS, 0.5]
    rows: list[dict[str, Any]] = []
    for low, high in pairwise(bounds):
        own = [
            one["test"]
            for one in classes
            if one["known_to"] is not None and low < one["known_to"] <= high
        ]
        if not own:
            continue
        text = (
            f"±{high} or better"
            if not low
            else f"±{low} to ±{high}"
            if high < 0.5
            else f"worse than ±{low}"
        )
        rows.append({"known_to": text, "classes": len(own), "least": min(own), "most": max(own)})
    unknown = sum(one["known_to"] is None for one in classes)
    return (
        [*rows, {"known_to": "not at all", "classes": unknown, "least": 0, "most": 0}]
        if unknown
        else rows
    )


def _show_evaluation(found: Mapping[str, Any]) -> None:
    if not found["images"]["val"]:
        tables.say("warning: there are no validation images")
    if not found["images"]["test"]:
        tables.say("warning: there are no test images")
        return
    tables.say("\nhow far the recall of a class is known from its test images (95%, at worst)")
    for own in found["known"]:
        span = (
            f"{own['least']:,}"
            if own["least"] == own["most"]
            else f"{own['least']:,} to {own['most']:,}"
        )
        tables.say(f"  {own['known_to']}: {own['classes']} classes, with {span} test images")
    means = [f"balanced accuracy ±{100 * found['known_to']:.1f}"]
    means += [
        f"{name} ±{100 * own['known_to']:.1f}"
        for name, own in found["groups"]["members"].items()
        if own["known_to"] is not None
    ]
    tables.say(f"  together, in points: {', '.join(means)}")


def _show_files(files: Mapping[str, Any]) -> None:
    if (
        files["width"]["least"] == files["width"]["most"]
        and files["height"]["least"] == files["height"]["most"]
    ):
        tables.say(f"\nimages: all {files['width']['most']:g} x {files['height']['most']:g}")
    else:
        spans = (
            f"{name} {own['least']:g} to {own['most']:g}, median {own['median']:g}"
            for name, own in _quantiles(files)
        )
        tables.say(f"\nimages: {'; '.join(spans)}")
    if files["smaller_than_the_network"]:
        tables.say(
            f"  {files['smaller_than_the_network']:,} are smaller than what the network sees"
        )
    if files["converted"]:
        tables.say(
            "  converted:"
            f" {', '.join(f'{count:,} {kind}' for kind, count in files['converted'].items())}"
        )
    for name, own in files["unusual"].items():
        tables.say(
            f"  {name}: {own['count']:,}"
            f" ({_some([_sized(one) for one in own['images']], count=own['count'], shown=3)})"
        )


def _quantiles(files: Mapping[str, Any]) -> list[tuple[str, Mapping[str, float]]]:
    return [
        ("width", files["width"]),
        ("height", files["height"]),
        ("width / height", files["aspect"]),
    ]


def _show_duplicates(found: Mapping[str, Any]) -> None:
    if not found["groups"]:
        tables.say("\nduplicates: none found")
    else:
        across = (
            ", ".join(f"{count:,} in {pair}" for pair, count in found["across"].items() if count)
            or "none across splits"
        )
        tables.say(
            f"\nduplicates: {found['exact']:,} exact and {found['near']:,} near groups,"
            f" {_images(found['surplus'])} too many; {across}; {found['conflicts']:,} under two"
            " labels"
        )
    for own in found["groups"][:SHOWN]:
        first, *others = own["images"]
        named = " = ".join(f"{one['split']}: {one['image']}" for one in (first, *others[:2]))
        labels = (
            f" [{' / '.join(sorted({one['class'] for one in own['images']}))}]"
            if own["conflict"]
            else ""
        )
        more = f" and {len(others) - 2} more" if len(others) > 2 else ""
        tables.say(f"  {'exact' if own['exact'] else 'near'}{labels}: {named}{more}")
    _rest(len(found["groups"]), SHOWN)
    for note in found["notes"]:
        tables.say(f"warning: {note}")


def _rest(count: int, shown: int) -> None:
    if count > shown:
        tables.say(
            f"  and {count - shown:,} more: --json FILE has them all, --html FILE shows them"
        )


def _some(names: Sequence[str], *, count: int | None = None, shown: int = 5) -> str:
    rest = (len(names) if count is None else count) - shown
    return ", ".join(names[:shown]) + (f" and {rest:,} more" if rest > 0 else "")


def _sized(one: Mapping[str, Any]) -> str:
    return f"{one['image']} {one['width']} x {one['height']}"


def _images(count: int) -> str:
    return f"{count:,} image{'' if count == 1 else 's'}"


def _are(count: int, what: str) -> str:
    return (
        f"1 {what} is"
        if count == 1
        else f"{count:,} {what}{'es' if what.endswith('s') else 's'} are"
    )
