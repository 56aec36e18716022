"""Print the findings of `longtail inspect`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from longtail.cli import tables

HISTOGRAM = 30  # bars; beyond that, the head and the tail of the classes are shown
BAR = 36  # characters
SHOWN = 10  # items of a list on the terminal; the files have all


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
        tables.say(f"unreadable: {image_count(len(results['unreadable']))}")
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


def _largest_and_smallest(
    classes: Sequence[Mapping[str, Any]], table: Table
) -> Iterator[Mapping[str, Any]]:
    """Classes by size; of more than `HISTOGRAM`, a row of the table stands for those between."""
    ordered, half = sorted(classes, key=lambda row: -row["source"]), HISTOGRAM // 2
    if len(ordered) <= HISTOGRAM:
        yield from ordered
        return
    yield from ordered[:half]
    table.add_row(Text(f"... {len(ordered) - 2 * half} more", style="dim"))
    yield from ordered[-half:]


def histogram(classes: Sequence[Mapping[str, Any]], *, largest: int) -> Table:
    """A bar per class, the largest class first."""
    table = Table(box=None, padding=(0, 1), header_style="dim")
    for name in ("class", "", "all", "train", "val", "test", "group", "recall"):
        table.add_column(
            name, justify="left" if name in ("class", "", "group") else "right", no_wrap=True
        )
    colours = {"many": "green", "medium": "yellow", "few": "red"}
    for row in _largest_and_smallest(classes, table):
        bar = Text(
            "█" * max(round(BAR * row["source"] / largest), 1), style=colours.get(row["group"], "")
        )
        numbers = (f"{row[name]:,}" for name in ("source", "train", "val", "test"))
        known = "unknown" if row["known_to"] is None else f"±{row['known_to']:.2f}"
        table.add_row(tables.name(row["name"]), bar, *numbers, row["group"], known)
    return table


def domain_table(results: Mapping[str, Any]) -> Table:
    """Images of each class in each domain; beyond `HISTOGRAM` classes, the largest and smallest."""
    domains = results["domains"]
    table = Table(box=None, padding=(0, 1), header_style="dim")
    table.add_column("class", no_wrap=True)
    for name in domains["names"]:
        heading = tables.name(f"{name} (test)" if name == domains["test"] else name)
        table.add_column(heading, justify="right")
    numbered = [{**row, "label": label} for label, row in enumerate(results["classes"])]
    for row in _largest_and_smallest(numbered, table):
        cells = [f"{counts[row['label']]:,}" for counts in domains["counts"]]
        table.add_row(tables.name(row["name"]), *cells)
    table.add_row("all", *(f"{sum(counts):,}" for counts in domains["counts"]))
    return table


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
            f" ({some(list(map(_sized, unusual['images'])), count=unusual['count'], shown=3)})"
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
            f" {image_count(results['surplus'])} too many; {across}; {results['conflicts']:,} under"
            " two labels"
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


def some(names: Sequence[str], *, count: int | None = None, shown: int = 5) -> str:
    """The first few names, and how many more there are; `count` of them where not all are given.

    >>> some(["a", "b", "c"], shown=2)
    'a, b and 1 more'
    """
    rest = (len(names) if count is None else count) - shown
    return ", ".join(names[:shown]) + (f" and {rest:,} more" if rest > 0 else "")


def _sized(image: Mapping[str, Any]) -> str:
    return f"{image['image']} {image['width']} x {image['height']}"


def image_count(count: int) -> str:
    """A number of images in words.

    >>> image_count(1), image_count(2000)
    ('1 image', '2,000 images')
    """
    return f"{count:,} image{'' if count == 1 else 's'}"
