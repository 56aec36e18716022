"""The row: the results of a finished run, in `row.json`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NotRequired, TypedDict, cast

from longtail.deprecated import current_keyword, current_keywords, run_keywords
from longtail.errors import LongtailError
from longtail.records.documents import Document, Kind, current, read_document, renamed, required_by
from longtail.records.layout import RunFolder
from longtail.records.scores import Headline, Label, add_scores


class Without(TypedDict):
    """Classes without images in a split, which no accuracy covers."""

    count: int
    indices: list[int]


class Worst(TypedDict):
    """One of the classes with the lowest recall."""

    index: int  # of the class
    group: str
    recall: float
    low: float  # of the 95% interval of the recall
    high: float
    images: int  # in this split
    train_images: int
    confused_with: int | None  # the class that most of its images are taken for, if any
    confused_with_group: str | None
    confused_share: float | None  # the share of its images that are taken for that class


class Calibration(TypedDict):
    """By how much confidence misses accuracy: on average over images, and in the worst bin."""

    ece: float
    mce: float


class Classwise(TypedDict):
    """Class-wise expected calibration error: the mean over all classes, and over those of each
    group.
    """

    mean: float
    groups: dict[str, float | None]


class Reliability(TypedDict):
    """A reliability diagram: bin i of n holds confidences in (i/n, (i+1)/n]. None in bins without
    images.
    """

    confidence: list[float | None]  # mean of each bin
    accuracy: list[float | None]
    images: list[int]
    ece: float
    mce: float


class Confusions(TypedDict):
    """Which group the images of each group are predicted as; each image counts once."""

    groups: list[str]  # the order of rows and columns
    # Images of the row's group that were predicted as a class of the column's group
    matrix: list[list[int]]
    correct: list[int]  # of each group: images whose class was predicted


class Prior(TypedDict):
    """Accuracy under a long-tailed (forward), uniform or reversed (backward) class prior."""

    direction: str  # "forward" | "uniform" | "backward"
    k: int  # the most frequent class is k times as frequent as the rarest
    accuracy: float
    known_prior: float  # accuracy if log q of the prior is added to the logits


class WorstCoverage(TypedDict):
    """The class whose images are most often missing from their sets."""

    index: int
    coverage: float
    images: int


class Conformal(TypedDict):
    """Prediction sets that contain the true class with a probability of at least `level`,
    calibrated on validation.
    """

    level: float
    score: str
    images: int  # that the thresholds were calibrated on
    # How many classes have a threshold from: class, group, all, nothing (always in the set)
    calibrated_on: dict[str, int]
    coverage: float  # share of images whose set contains their class
    balanced: float  # mean over classes of the same
    groups: dict[str, float | None]  # mean over a group's classes of the same
    worst: WorstCoverage
    size: float  # classes in a set, on average over images
    size_groups: dict[str, float | None]  # the same for each group, as a mean over its classes
    # Share of images with more than one class in their set: where the network should abstain
    multiple: float
    empty: float  # share of images with none
    # Of the images with one class in their set, the share for which it is the right one
    single_correct: float | None


class Summary(TypedDict):
    """One split's numbers. Accuracies are fractions in [0, 1]; None where there is nothing to
    measure.

    What is `NotRequired` is missing from rows of earlier versions; the lists, `worst` and what
    follows it also from those of single heads.
    """

    # By name, those of the data's scorer: `Row.labels` says how they are shown
    scores: dict[str, float | None]
    top1: float
    top5: float | None  # None with five classes or fewer
    balanced: float
    groups: dict[str, float | None]  # many, medium, few
    group_rule: str
    recall: list[float | None]  # one for each class
    classes_without_images: Without
    ece: float
    mce: float
    bins: int
    confidence: str  # "softmax" | "sigmoid"
    images: int
    # The same numbers for each part of a head that has several, such as cls and dist
    heads: NotRequired[dict[str, Summary]]
    h_mean: NotRequired[float]  # harmonic mean of the recalls; 0 as soon as one of them is
    g_mean: NotRequired[float]  # geometric mean of the recalls; 0 as soon as one of them is
    zero_recall: NotRequired[int]  # classes of which no image is recognised
    macro_f1: NotRequired[float]
    calibration: NotRequired[dict[str, Calibration]]  # by confidence: softmax, sigmoid
    classwise_ece: NotRequired[Classwise]
    members: NotRequired[dict[str, list[int]]]  # the classes of each group
    images_per_class: NotRequired[list[int]]  # images of each class in this split
    recall_low: NotRequired[list[float | None]]  # of each class: Wilson's 95% interval
    recall_high: NotRequired[list[float | None]]
    # Of each class: the class that most of its images are taken for, if any
    confused_with: NotRequired[list[int | None]]
    # Of each class: the share of its images that are taken for that class
    confused_share: NotRequired[list[float | None]]
    worst: NotRequired[list[Worst]]  # by recall, then fewer training images, then index
    # Of "all" images, and of those of each group
    reliability: NotRequired[dict[str, Reliability | None]]
    confusions: NotRequired[Confusions]
    priors: NotRequired[list[Prior]]  # forward 50 to 2, uniform, backward 2 to 50
    # Of the test images, where there are validation images to calibrate on
    conformal: NotRequired[Conformal]


class Data(TypedDict):
    """The data of a run."""

    name: str
    hash: str  # of all (image content, label) pairs
    protocol: str  # "holdout" | "paper" | "adapt"
    imbalance: NotRequired[float | None]
    scoring: NotRequired[str | None]  # the score that was requested as the headline
    test_domain: NotRequired[str | None]  # the test images are those of this domain
    train_domain: NotRequired[str | None]  # the domains of training, where some were left out
    mirror: NotRequired[bool]  # whether training mirrored images
    geometry: NotRequired[str]  # how images became squares: "pad" | "crop" | "stretch"
    backbone: NotRequired[dict[str, Any]]  # of features: the spec of the network they come from
    classes: int
    train_images: int
    counts_before: list[int]  # training images per class before validation was held out
    counts_after: list[int]  # and after: what priors are made of
    caveats: list[str]  # such as "counts conventional, images not"


class Best(TypedDict):
    """The epoch with the best headline on validation, which the test results do not use."""

    epoch: int
    value: float


class Adjustment(TypedDict):
    """The adjustment of the logits, chosen on validation, and the summaries without it."""

    tau: float  # strength of the shift by the log prior
    temperature: float
    val: Summary | None
    test: Summary | None


class OperatingPoint(TypedDict):
    """What is added to the logits of classes without training images, and who chose it."""

    bias: float
    chosen_on: str  # "validation" | "recipe" | "nothing"
    harmonic_mean: float | None  # of seen and unseen accuracy on validation, at this bias
    # The summaries without the bias, where it is not 0
    val: NotRequired[Summary | None]
    test: NotRequired[Summary | None]


class Evaluation(TypedDict):
    """A finished run's numbers on validation and test images, and how its scores are shown."""

    val: Summary | None
    test: Summary | None
    headline: Headline
    labels: dict[str, Label]


class StoredEvaluation(Evaluation):
    """An evaluation as its file has it: also on which data, and with which averaging."""

    data: str
    hash: str
    tta: str
    versions: dict[str, str]


class Row(TypedDict):
    """A finished run in one line of a table."""

    format: int
    recipe: str
    keywords: dict[str, Any]
    data: Data
    seed: int
    view_seed: int
    split_seed: int
    # "last epoch" | "last epoch, ema" | "best val/HEADLINE", each also with ", adjusted on
    # validation"
    selection: str
    tta: str  # "none" | "flip"
    size: int  # pixels
    pretraining: str | None
    parameters: int
    epochs: dict[str, int]  # by stage
    epoch_plan: NotRequired[str]  # where the epochs were planned again on the way
    minutes: float
    test: Summary | None
    val: Summary | None
    best_validation: Best | None
    headline: Headline  # the score that ranks
    labels: dict[str, Label]  # of each score, in the order of the tables' columns
    versions: dict[str, str]
    hardware: dict[str, Any]
    # Keywords of the recipe that had no effect, and so are not among `keywords`
    unused: NotRequired[list[str]]
    # Of the runs whose weights it began with, where they are known
    minutes_before: NotRequired[float]
    # Of data with classes without training images
    operating_point: NotRequired[OperatingPoint]
    adjustment: NotRequired[Adjustment]  # only of runs with an adjustment
    folder: NotRequired[str]  # where it was read from; not in the file


def mirrored(row: Row) -> bool:
    """Whether training mirrored images; rows from before the field did, but for digits."""
    return row["data"].get("mirror", row["data"]["name"] != "digits-lt")


def geometry_of(row: Row) -> tuple[str, bool]:
    """How images became squares, and whether that is inferred because the row is from before the
    field.

    Images were padded then where all pixels fitted into 1 GB, and where they came as arrays, which
    are squares.
    """
    data = row["data"]
    if "geometry" in data:
        return data["geometry"], False
    tested = sum(split["images"] for split in (row["test"], row["val"]) if split is not None)
    fits = (data["train_images"] + tested) * 3 * row["size"] ** 2 <= 1 << 30
    return "pad" if fits or data["name"].startswith(("cifar10", "digits-lt")) else "crop", True


def read_row(folder: Path) -> Row:
    """Read the row of a finished run; `folder` is added, which its predictions are read from."""
    path = RunFolder(folder).row
    if not folder.is_dir():
        got = "a file" if folder.exists() else "nothing"
        raise LongtailError(
            f"expected a run folder, got {got} at {folder}: pass the folder that `longtail train`"
            " was given as --out"
        )
    if not path.exists():
        raise LongtailError(_why_no_row(folder))
    return _complete(read_document(path, ROW) | {"folder": str(folder)})


def read_evaluations(folder: Path) -> list[StoredEvaluation]:
    """What `longtail eval` has written in a run folder besides the row, in the order of names."""
    paths = RunFolder(folder).evaluations()
    return [cast(StoredEvaluation, read_document(path, EVALUATION)) for path in paths]


def row_of(content: object, *, source: Path) -> Row:
    """A row inside another file, such as a committed result; errors name `source`."""
    return _complete(current(content, ROW, source=source))


def _complete(document: Document) -> Row:
    keywords = run_keywords(document["recipe"], document["keywords"])
    return cast(Row, document | {"keywords": keywords})


def upgrade_row(document: Document) -> Document:
    """Format 1 had no named scores, and the names `marks`, `adjusting`, `eater` and `eaten`."""
    row = renamed(document, {"adjusting": "adjustment"})
    row["keywords"] = current_keywords(row["recipe"], row["keywords"])
    if "unused" in row:
        row["unused"] = [current_keyword(row["recipe"], name) for name in row["unused"]]
    row["data"] = renamed(row["data"], {"marks": "caveats"})
    if row.get("adjustment"):
        row["adjustment"] = _with_upgraded_splits(row["adjustment"])
    return upgrade_evaluation(row)


def upgrade_evaluation(document: Document) -> Document:
    """Format 1 had no named scores, and other names in its summaries."""
    evaluation = _with_upgraded_splits(document)
    add_scores(evaluation)
    return evaluation


def _with_upgraded_splits(document: Document) -> Document:
    splits = ("val", "test")
    return {
        name: _summary(value) if name in splits and value else value
        for name, value in document.items()
    }


_SUMMARY = {
    "classes_without_test": "classes_without_images",
    "tested": "images_per_class",
    "eater": "confused_with",
    "eaten": "confused_share",
}
_INSIDE = {
    "worst": {
        "train": "train_images",
        "eater": "confused_with",
        "eater_group": "confused_with_group",
        "eaten": "confused_share",
    },
    "confusions": {"right": "correct"},
    "priors": {"known": "known_prior"},
    "conformal": {"several": "multiple", "single_right": "single_correct"},
}


def _summary(document: Document) -> Document:
    summary = renamed(document, _SUMMARY)
    if "heads" in summary:
        summary["heads"] = {name: _summary(head) for name, head in summary["heads"].items()}
    for name in _INSIDE.keys() & summary:
        part, names = summary[name], _INSIDE[name]
        summary[name] = (
            [renamed(one, names) for one in part]
            if isinstance(part, list)
            else renamed(part, names)
        )
    return summary


def _inconsistency(row: Document) -> str | None:
    """A list of classes that is not as long as there are classes."""
    classes = row["data"]["classes"]
    lists = {f"data.{name}": row["data"][name] for name in ("counts_before", "counts_after")}
    for split in ("val", "test"):
        for name in ("recall", "recall_low", "recall_high", "images_per_class", "confused_with"):
            lists[f"{split}.{name}"] = (row[split] or {}).get(name)
    for name, values in lists.items():
        if values is not None and len(values) != classes:
            return f"{classes} numbers as {name}, one for each class, got {len(values)}"
    return None


ROW = Kind(
    "row",
    required_by(Row),
    repair="delete it and run the same `longtail train` command again",
    upgrade=upgrade_row,
    fields=Row,
    problem=_inconsistency,
)
EVALUATION = Kind(
    "evaluation",
    required_by(StoredEvaluation),
    repair="delete it and run `longtail eval` again",
    upgrade=upgrade_evaluation,
    fields=StoredEvaluation,
)


def _why_no_row(folder: Path) -> str:
    """Why a folder has no row: an unfinished run, no files, a folder of runs, or other files."""
    if not any(folder.iterdir()):
        return (
            f"expected a finished run, got an empty folder at {folder}: start one with `longtail"
            f" train RECIPE --out {folder}`"
        )
    if RunFolder(folder).recipe.exists():
        return (
            f"expected a finished run, got an unfinished one at {folder}: run the same `longtail"
            " train` command again to continue it"
        )
    runs = [run.path for run in RunFolder(folder).finished_inside()]
    if runs:
        return (
            f"expected a run folder, got a folder of runs at {folder}: name the runs themselves,"
            f" such as {' '.join(map(str, runs[:3]))}"
        )
    return (
        f"expected a run folder, got other files at {folder}: a run has recipe.json and, when"
        " finished, row.json"
    )
