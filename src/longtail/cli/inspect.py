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

from longtail.cli import flags, tables
from longtail.cli.inspection import image_count, show, some
from longtail.recipes.auto import MAX_BALANCED_RATIO
from longtail.records.files import write_text

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from longtail.data.dataset import Dataset

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
    from longtail.data.assembly import assemble
    from longtail.data.inspect.survey import survey, unread
    from longtail.data.open import find
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

        write(html, page(results, {} if quick else thumbnails(dataset, results)))
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
        if results["unseen"].get("vector"):  # eszsl and ce_gzsl train on features
            results["commands"] = [f"longtail embed {data} --network NETWORK --out features.npz"]
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
            f"No training image of {some(results['emptied'])} can be read. Training stops"
            " with an error: repair the images or remove the classes."
        )
    if results["unreadable"]:
        count = len(results["unreadable"])
        lines.append(
            f"{image_count(count)} cannot be read. Repair or remove them, or train without them:"
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
            f"At least {share:.2%} of the test set ({image_count(leaked)})"
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
            f"{_are(len(names), 'class')} without a test image ({some(names)}): trained but not"
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
            lines.append(f"Some classes have no image in a domain: {some(gaps)}.")
    if (unseen := results["unseen"]) is not None and "pairs" not in results:
        lines.append(
            f"{_are(unseen['classes'], 'class')} without training images: plain training never"
            " predicts them."
            + (
                " Recipes for unseen classes (eszsl, ce_gzsl) train on features of the images."
                if unseen.get("vector")
                else ""
            )
        )
    if results["imbalance"] <= MAX_BALANCED_RATIO:
        special = unseen is not None or domains is not None
        lines += [] if special else ["The classes have similar sizes: plain training is enough."]
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
                f"{some(once)}: seen in a single pair, so that this {part} cannot be told from"
                " what it is seen with. Add other pairs of it to training."
            )
    for split, title in (("val", "validation"), ("test", "test")):
        if not pairs["unseen"][split]:
            lines.append(
                f"There is no unseen pair in {title}, so AUC cannot be measured there: put all"
                " images of some pairs into it."
            )
    return lines


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


def thumbnails(dataset: Dataset, results: Mapping[str, Any]) -> dict[str, NDArray[np.uint8]]:
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


def _are(count: int, what: str) -> str:
    return (
        f"1 {what} is"
        if count == 1
        else f"{count:,} {what}{'es' if what.endswith('s') else 's'} are"
    )
