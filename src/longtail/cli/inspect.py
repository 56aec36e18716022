"""`longtail inspect DATA`: what to know and what to fix before training."""

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
from longtail.records.files import write_text

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from longtail.data.dataset import Dataset

HISTOGRAM = 30  # bars; beyond that, the head and the tail of the classes are shown
BAR = 36  # characters
SHOWN = 10  # items of a list on the terminal; the files have all
STEPS = (0.1, 0.2, 0.3)  # bounds on the half-width of the interval of a recall
# Numbers of images on the page
PAGE = {"groups": 48, "copies": 2, "classes": 8, "examples": 6, "unusual": 8}


def inspect(
    data: Annotated[
        str, typer.Argument(help="A known name, a folder of class folders, or a list file.")
    ],
    html: Annotated[
        Path | None, typer.Option(help="Also write a page with images to this file.")
    ] = None,
    json: Annotated[
        Path | None,
        typer.Option(help="Also write all results to this file as JSON."),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="Only count images: do not read them, and skip the search for duplicates.",
        ),
    ] = False,
    **values: Any,
) -> None:
    """Inspect data before training: imbalance, duplicates, bad images, test set size, advice."""
    from longtail.data.inspect.survey import survey, unread
    from longtail.data.open import assemble, find
    from longtail.data.request import DataRequest

    request = DataRequest.from_flags(data, values)
    source = find(request)
    surveyed = None if quick else survey(source)
    dataset = assemble(
        unread(source) if surveyed is None else surveyed.source,
        protocol=request.protocol,
        split_seed=request.split_seed,
    )
    unreadable, emptied = ((), ()) if surveyed is None else (surveyed.unreadable, surveyed.emptied)
    same = "".join(f" {shlex.quote(word)}" for word in request.words())
    results = findings(
        dataset, f"{shlex.quote(data)}{same}", unreadable=unreadable, emptied=emptied, quick=quick
    )
    show(results)
    if json is not None:
        write(json, to_json(results))
    if html is not None:
        from longtail.report.inspection import page

        write(html, page(results, {} if quick else pictures(dataset, results)))
    tables.next_step(
        *results["commands"],
        *([] if html or quick else [f"longtail inspect {results['data']} --html inspection.html"]),
    )


def _signature() -> list[Parameter]:
    """The signature of `inspect` with the data flags in place of `values`."""
    parameters = dict(signature(inspect, eval_str=True).parameters)
    del parameters["values"]
    return [*parameters.values(), *flags.DATA_OPTIONS.values()]


flags.signed(inspect, _signature())


def findings(
    dataset: Dataset,
    data: str,
    *,
    unreadable: Sequence[Mapping[str, str]] = (),
    emptied: Sequence[str] = (),
    quick: bool = False,
) -> dict[str, Any]:
    """All results: statistics, files, duplicates and advice.

    Args:
        dataset: The assembled dataset.
        data: The name or path with its data flags, as given on the command line.
        unreadable: Images that cannot be read, with `image` and `reason`.
        emptied: Classes without any readable training image.
        quick: Read no image.
    """
    from longtail.data.inspect.duplicates import duplicates
    from longtail.data.inspect.facts import facts
    from longtail.data.inspect.survey import files

    results = {
        "format": 1,
        "data": data,
        **facts(dataset),
        "unreadable": list(unreadable),
        "emptied": list(emptied),
    }
    if quick:
        results |= {"hash": None, "files": None, "duplicates": None, "examples": {}}
    else:
        results |= {
            "files": files(dataset),
            "duplicates": duplicates(dataset),
            "examples": examples(dataset, results),
        }
    results["known"] = _known(results["classes"])
    skip = " --on-bad-image skip" if unreadable else ""
    second = "balanced_softmax" if results["imbalance"] > MAX_BALANCED_RATIO else "cross_entropy"
    results["commands"] = [
        f"longtail train {recipe} --data {data}{skip}" for recipe in ("auto", second)
    ]
    if "pairs" in results:
        results["commands"] = [
            f"longtail train {recipe} --data {data}{skip}"
            for recipe in ("compcos", "attribute_object")
        ]
    elif results["unseen"] is not None:  # auto and balanced_softmax refuse such data
        results["commands"] = [f"longtail train cross_entropy --data {data}{skip}"]
    if dataset.unlabelled is not None:
        second = "mdd"
        results["commands"] = [f"longtail train mdd --data {data}{skip}"]
    if dataset.has_vectors:
        recipe = "compcos" if "pairs" in results else second
        results["commands"] = [f"longtail train {recipe} --data {data} --network vectors"]
        if results["unseen"] is not None and "pairs" not in results:
            results["commands"] = [
                f"longtail train {recipe} --data {data}" for recipe in ("eszsl", "ce_gzsl")
            ]
    if dataset.test_domain is not None and dataset.unlabelled is None:
        network = " --network vectors --hidden 256" if dataset.has_vectors else ""
        results["commands"] = [f"longtail train erm --data {data}{network}{skip}"]
    results["advice"] = advice(results)
    return results


def advice(results: Mapping[str, Any]) -> list[str]:
    """Advice from the findings, one sentence each, the most serious first."""
    lines, copies, images = [], results["duplicates"], results["images"]
    if results["emptied"]:
        lines.append(
            f"No training image of {_some(results['emptied'])} can be read. Training stops"
            " with an error: repair the images or remove the classes."
        )
    if results["unreadable"]:
        count = len(results["unreadable"])
        lines.append(
            f"{_images(count)} cannot be read. Repair or remove them, or train without them:"
            " --on-bad-image skip."
        )
    if copies and copies["conflicts"]:
        lines.append(
            f"{_are(copies['conflicts'], 'image')} present under two labels: one of the labels is"
            " wrong."
            " There may be more wrong labels, of images without copies. Correct these first."
        )
    if copies and (leaked := copies["leaked"]):
        share = leaked / images["test"]
        lines.append(
            f"At least {share:.2%} of the test set ({_images(leaked)})"
            f" {'is' if leaked == 1 else 'are'} also in training or validation, so the measured"
            " accuracy is too high. The same object photographed again is not found, and may be"
            " far more common."
            " Remove the copies from one side; with a public benchmark, report them."
        )
    if copies and copies["surplus"] and not any(copies["across"].values()):
        lines.append(
            f"{_are(copies['surplus'], 'image')} copies of others within a split and count more"
            " than once: remove them."
        )
    if "pairs" in results:
        lines += _pair_advice(results["pairs"])
    if not images["test"]:
        lines.append("There are no test images, so accuracy cannot be measured: add some.")
    elif results["not_tested"]:
        names = results["not_tested"]
        lines.append(
            f"{_are(len(names), 'class')} without a test image ({_some(names)}): trained but not"
            " evaluated. Collect more images."
        )
    few = [row for row in results["classes"] if row["test"] and row["known_to"] > STEPS[-1]]
    if few:
        least = min(few, key=lambda row: row["test"])
        lines.append(
            f"{len(few)} of {len(results['classes'])} classes have too few test images to be"
            " evaluated"
            f" one by one: {least['name']} has {least['test']}, so its recall is known to about"
            f" ±{least['known_to']:.1f}. Evaluate groups of classes; collect more images if you"
            " can."
        )
    if results["known_to"] is not None and images["test"]:
        lines.append(
            f"Balanced accuracy on this test set is known to about ±{100 * results['known_to']:.1f}"
            " points: smaller differences between two runs are not significant, unless they are"
            " compared image by image (longtail compare)."
        )
    if (domains := results["domains"]) is not None:
        gaps = [
            f"{results['classes'][label]['name']} in {name}"
            for name, counts in zip(domains["names"], domains["counts"], strict=True)
            for label, count in enumerate(counts)
            if not count
        ]
        if gaps:
            lines.append(f"Some classes have no image in a domain: {_some(gaps)}.")
    if results["imbalance"] <= MAX_BALANCED_RATIO:
        lines.append("The classes have similar sizes: plain training is enough.")
    elif results["smallest"] < 5:
        lines.append(
            "Some classes have fewer than 5 training images. Pretrained networks help most there."
        )
    return lines


def _pair_advice(pairs: Mapping[str, Any]) -> list[str]:
    lines = []
    for part in ("attribute", "object"):
        once = [row["name"] for row in pairs[part] if row["pairs"] == 1]
        if once:
            lines.append(
                f"{_some(once)}: seen in a single pair, so that this {part} cannot be told from"
                " what it is seen with. Add other pairs of it to training."
            )
    for split, title in (("val", "validation"), ("test", "test")):
        if not pairs["unseen"][split]:
            lines.append(
                f"There is no unseen pair in {title}, so AUC cannot be measured there: put all"
                " images of some pairs into it."
            )
    return lines


def _show_pairs(pairs: Mapping[str, Any]) -> None:
    unseen, parts = pairs["unseen"], [pairs["attribute"], pairs["object"]]
    tables.say(
        f"pairs: {len(parts[0])} attributes x {len(parts[1])} objects, {pairs['candidates']:,}"
        f" candidates ({pairs['share']:.0%} of all): {pairs['seen']:,} seen, {unseen['val']:,}"
        f" unseen in validation, {unseen['test']:,} unseen in test"
    )
    for title, rows in zip(("attributes", "objects"), parts, strict=True):
        fewest = ", ".join(
            f"{row['name']} ({row['pairs']} pairs, {row['images']:,} images)"
            for row in rows[:SHOWN]
        )
        tables.say(f"{title} seen in the fewest pairs: {fewest}")


def examples(dataset: Dataset, results: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """A few images per class of the smallest classes, the smallest class first."""
    from longtail.data.inspect.survey import image

    tail = min(PAGE["classes"], -(-len(dataset.classes) // 3))
    smallest = sorted(
        range(len(dataset.classes)), key=lambda i: (results["classes"][i]["source"], i)
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


def pictures(dataset: Dataset, results: Mapping[str, Any]) -> dict[str, NDArray[np.uint8]]:
    """Thumbnails for the page by "split/row": copies, unusual images, examples of small classes."""
    import numpy as np

    from longtail.data.inspect.survey import SurveyedImages

    images = [
        image
        for group in results["duplicates"]["groups"][: PAGE["groups"]]
        for image in group["images"][: PAGE["copies"]]
    ]
    images += [
        image
        for kind in results["files"]["unusual"].values()
        for image in kind["images"][: PAGE["unusual"]]
    ]
    images += [image for members in results["examples"].values() for image in members]
    thumbnails: dict[str, NDArray[np.uint8]] = {}
    for image in images:
        store = getattr(dataset, image["split"]).inputs
        assert isinstance(store, SurveyedImages)
        thumbnails[f"{image['split']}/{image['row']}"] = np.asarray(store.small(image["row"], 96))
    return thumbnails


def to_json(results: Mapping[str, Any]) -> str:
    """The findings as JSON."""
    return json.dumps(results, indent=1, ensure_ascii=False) + "\n"


def write(path: Path, text: str) -> None:
    """Write a file and print its path."""
    write_text(path, text.encode("utf-8", errors="backslashreplace").decode())
    tables.say(f"written: {path}")


def show(results: Mapping[str, Any]) -> None:
    """Print the findings."""
    images, effective = results["images"], results["effective"]
    identity = f", split {results['hash'][:12]}" if results["hash"] else ""
    tables.say(
        f"{results['name']}: {len(results['classes'])} classes, {results['size']} px{identity}"
    )
    tables.say(
        f"images: {images['train']:,} train, {images['val']:,} validation, {images['test']:,} test"
        f" ({results['protocol']} protocol)"
    )
    tables.say(
        f"largest class {results['largest']:,}, smallest {results['smallest']:,}: imbalance"
        f" {results['imbalance']:.1f}, Gini {results['gini']:.2f}, entropy of"
        f" {results['equal_classes']:.1f} equal classes"
    )
    tables.say(
        f"effective numbers (beta {effective['beta']:g}): {effective['largest']:,.0f} to"
        f" {effective['smallest']:,.1f}, imbalance {effective['imbalance']:.1f}"
    )
    groups = ", ".join(
        f"{name} {group['classes']} classes ({group['images']:,} images)"
        for name, group in results["groups"]["members"].items()
    )
    tables.say(f"groups by {results['groups']['rule']}: {groups}\n")
    if "pairs" in results:
        _show_pairs(results["pairs"])
    elif (unseen := results["unseen"]) is not None:
        _show_unseen(unseen)
    tables.print_table(histogram(results["classes"], largest=results["largest"]))
    if results["domains"] is not None:
        tables.say("\nimages by domain and class")
        tables.print_table(domain_table(results))
    _show_evaluation(results)
    if results["files"] is not None:
        _show_files(results["files"])
        _show_duplicates(results["duplicates"])
    if results["unreadable"]:
        tables.say(f"unreadable: {_images(len(results['unreadable']))}")
        for image in results["unreadable"][: 2 * SHOWN]:
            tables.say(f"  {image['image']}: {image['reason']}")
        _rest(len(results["unreadable"]), 2 * SHOWN)
    for caveat in results["caveats"]:
        tables.say(f"note: {caveat}")
    for warning in results["warnings"]:
        tables.say(f"warning: {warning}")
    if results["files"] is None:
        tables.say(
            "no image was read: run without --quick to also find duplicates and unreadable images"
        )
    tables.say("\nadvice")
    for number, sentence in enumerate(results["advice"] or ["No problems found."], start=1):
        tables.say(f"  {number}. {sentence}")
    tables.say("")


def histogram(classes: Sequence[Mapping[str, Any]], *, largest: int) -> Table:
    """A bar per class, the largest class first."""
    ordered = sorted(classes, key=lambda row: -row["source"])
    half = HISTOGRAM // 2
    shown = ordered if len(ordered) <= HISTOGRAM else [*ordered[:half], None, *ordered[-half:]]
    table = Table(box=None, padding=(0, 1), header_style="dim")
    for name in ("class", "", "all", "train", "val", "test", "group", "recall"):
        table.add_column(
            name, justify="left" if name in ("class", "", "group") else "right", no_wrap=True
        )
    colours = {"many": "green", "medium": "yellow", "few": "red"}
    for row in shown:
        if row is None:
            table.add_row(Text(f"... {len(ordered) - 2 * half} more", style="dim"))
            continue
        bar = Text(
            "█" * max(round(BAR * row["source"] / largest), 1), style=colours.get(row["group"], "")
        )
        numbers = (f"{row[name]:,}" for name in ("source", "train", "val", "test"))
        known = "unknown" if row["known_to"] is None else f"±{row['known_to']:.2f}"
        table.add_row(Text(row["name"], overflow="ellipsis"), bar, *numbers, row["group"], known)
    return table


def domain_table(results: Mapping[str, Any]) -> Table:
    """Images of each class in each domain; beyond `HISTOGRAM` classes, the largest and smallest."""
    domains, names = results["domains"], [row["name"] for row in results["classes"]]
    order = sorted(range(len(names)), key=lambda label: -results["classes"][label]["source"])
    half = HISTOGRAM // 2
    shown = order if len(order) <= HISTOGRAM else [*order[:half], None, *order[-half:]]
    table = Table(box=None, padding=(0, 1), header_style="dim")
    table.add_column("class", no_wrap=True)
    for name in domains["names"]:
        table.add_column(f"{name} (test)" if name == domains["test"] else name, justify="right")
    for label in shown:
        if label is None:
            table.add_row(Text(f"... {len(order) - 2 * half} more", style="dim"))
            continue
        cells = [f"{counts[label]:,}" for counts in domains["counts"]]
        table.add_row(Text(names[label], overflow="ellipsis"), *cells)
    table.add_row("all", *(f"{sum(counts):,}" for counts in domains["counts"]))
    return table


def _known(classes: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The number of classes by the half-width of the interval of their recall."""
    bounds = [0.0, *STEPS, 0.5]
    rows: list[dict[str, Any]] = []
    for low, high in pairwise(bounds):
        tested = [
            one["test"]
            for one in classes
            if one["known_to"] is not None and low < one["known_to"] <= high
        ]
        if not tested:
            continue
        text = (
            f"±{high} or better"
            if not low
            else f"±{low} to ±{high}"
            if high < 0.5
            else f"worse than ±{low}"
        )
        rows.append(
            {"known_to": text, "classes": len(tested), "least": min(tested), "most": max(tested)}
        )
    unknown = sum(one["known_to"] is None for one in classes)
    return (
        [*rows, {"known_to": "not at all", "classes": unknown, "least": 0, "most": 0}]
        if unknown
        else rows
    )


def _show_evaluation(results: Mapping[str, Any]) -> None:
    if not results["images"]["val"]:
        tables.say("warning: there are no validation images")
    if not results["images"]["test"]:
        tables.say("warning: there are no test images")
        return
    tables.say(
        "\nprecision of the recall of a class, from its test images (95% interval, worst case)"
    )
    for row in results["known"]:
        span = (
            f"{row['least']:,}"
            if row["least"] == row["most"]
            else f"{row['least']:,} to {row['most']:,}"
        )
        tables.say(f"  {row['known_to']}: {row['classes']} classes, with {span} test images")
    means = [f"balanced accuracy ±{100 * results['known_to']:.1f}"]
    means += [
        f"{name} ±{100 * group['known_to']:.1f}"
        for name, group in results["groups"]["members"].items()
        if group["known_to"] is not None
    ]
    tables.say(f"  over classes, in points: {', '.join(means)}")


def _show_unseen(unseen: Mapping[str, Any]) -> None:
    tables.say(
        f"unseen classes: {unseen['classes']} have no training image, {unseen['seen']} have some;"
        f" {unseen['val']} of the unseen ones are in validation, {unseen['test']} in test"
    )
    if (vector := unseen["vector"]) is not None:
        only = (
            f"; {vector['only_unseen']} of these are not 0 for unseen classes only, so nothing can"
            " be learnt about them"
            if vector["only_unseen"]
            else ", and each that an unseen class has, a seen one has too"
        )
        tables.say(f"class vectors: every class has {vector['width']} attributes{only}")
    tables.say("")


def _show_files(files: Mapping[str, Any]) -> None:
    if (
        files["width"]["least"] == files["width"]["most"]
        and files["height"]["least"] == files["height"]["most"]
    ):
        tables.say(f"\nimages: all {files['width']['most']:g} x {files['height']['most']:g}")
    else:
        spans = (
            f"{name} {span['least']:g} to {span['most']:g}, median {span['median']:g}"
            for name, span in _quantiles(files)
        )
        tables.say(f"\nimages: {'; '.join(spans)}")
    if files["smaller_than_the_network"]:
        tables.say(
            f"  {files['smaller_than_the_network']:,} are smaller than the input of the network"
        )
    if files["converted"]:
        tables.say(
            "  converted:"
            f" {', '.join(f'{count:,} {kind}' for kind, count in files['converted'].items())}"
        )
    for name, unusual in files["unusual"].items():
        tables.say(
            f"  {name}: {unusual['count']:,}"
            f" ({_some(list(map(_sized, unusual['images'])), count=unusual['count'], shown=3)})"
        )


def _quantiles(files: Mapping[str, Any]) -> list[tuple[str, Mapping[str, float]]]:
    return [
        ("width", files["width"]),
        ("height", files["height"]),
        ("width / height", files["aspect"]),
    ]


def _show_duplicates(results: Mapping[str, Any]) -> None:
    if not results["groups"]:
        tables.say(
            "\nduplicates: none found (the same object photographed again would not be found)"
        )
    else:
        across = (
            ", ".join(f"{count:,} in {pair}" for pair, count in results["across"].items() if count)
            or "none across splits"
        )
        tables.say(
            f"\nduplicates: {results['exact']:,} exact and {results['near']:,} near groups,"
            f" {_images(results['surplus'])} too many; {across}; {results['conflicts']:,} under two"
            " labels"
        )
    for group in results["groups"][:SHOWN]:
        first, *others = group["images"]
        named = " = ".join(f"{image['split']}: {image['image']}" for image in (first, *others[:2]))
        labels = (
            f" [{' / '.join(sorted({image['class'] for image in group['images']}))}]"
            if group["conflict"]
            else ""
        )
        more = f" and {len(others) - 2} more" if len(others) > 2 else ""
        tables.say(f"  {'exact' if group['exact'] else 'near'}{labels}: {named}{more}")
    _rest(len(results["groups"]), SHOWN)
    for note in results["notes"]:
        tables.say(f"warning: {note}")


def _rest(count: int, shown: int) -> None:
    if count > shown:
        tables.say(
            f"  and {count - shown:,} more: --json FILE has them all, --html FILE shows them"
        )


def _some(names: Sequence[str], *, count: int | None = None, shown: int = 5) -> str:
    rest = (len(names) if count is None else count) - shown
    return ", ".join(names[:shown]) + (f" and {rest:,} more" if rest > 0 else "")


def _sized(image: Mapping[str, Any]) -> str:
    return f"{image['image']} {image['width']} x {image['height']}"


def _images(count: int) -> str:
    return f"{count:,} image{'' if count == 1 else 's'}"


def _are(count: int, what: str) -> str:
    return (
        f"1 {what} is"
        if count == 1
        else f"{count:,} {what}{'es' if what.endswith('s') else 's'} are"
    )
