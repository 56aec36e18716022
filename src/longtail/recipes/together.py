"""Which rows of a step see each other, and whether two settings mean the same training.

Rows see each other in batch norm, in BatchFormer and in queues. Where they do not, only the number
of images of a step counts, and not how it is divided.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from longtail.errors import LongtailError
from longtail.recipes.signatures import Recipe

BATCHES = (("batch", "accumulate"), ("pretrain_batch", "pretrain_accumulate"))
"""The keywords of a stage whose product is the number of images of a step."""


def attending(keywords: Mapping[str, Any], processes: int = 1) -> int:
    """How many images of a batch attend to each other in BatchFormer; 0 without it.

    >>> attending({"batchformer": "on", "batch": 128})
    128
    >>> attending({"batchformer": "on", "batch": 128, "batchformer_scope": "local"}, 2)
    64
    """
    if keywords.get("batchformer", "off") == "off":
        return 0
    everywhere = keywords.get("batchformer_scope") == "global"
    return int(keywords["batch"]) // (1 if everywhere else processes)


def differences(
    recipe: Recipe,
    expected: Mapping[str, Any],
    used: Mapping[str, Any],
    *,
    together: int = 0,
    processes: int = 1,
) -> Iterator[str]:
    """In which keywords a run differs from what was expected.

    Where rows do not see each other, or where as many see each other as expected, a step may be
    divided in another way over batches and processes.

    Args:
        recipe: of both.
        expected: the keywords that were expected, in one process.
        used: the keywords of the run; compared are those of `expected`.
        together: how many images attend to each other in BatchFormer.
        processes: of the run.
    """
    settled = {"batchformer_scope"} & expected.keys() if together else set()
    for batch, accumulate in BATCHES:
        if batch not in expected or accumulate not in expected:
            continue
        same = recipe.rows_are_separate(used) or expected[batch] in (
            used[batch],
            used[batch] / processes,
        )
        if not same:
            continue
        settled |= {batch, accumulate}
        before, now = (values[batch] * values[accumulate] for values in (expected, used))
        if before != now:
            yield f"{batch} x {accumulate} is {now} instead of {before}"
    for name, value in expected.items():
        if name not in settled and used[name] != value:
            yield f"{name} is {used[name]} instead of {value}"
    if together and (now := attending(used, processes)) != together:
        yield f"{now} images attend together instead of {together}"


def divided(
    recipe: Recipe,
    keywords: Mapping[str, Any],
    *,
    batch: int,
    accumulate: int | None = None,
    processes: int = 1,
) -> dict[str, int]:
    """The keywords with which each process gets `batch` images at once.

    The number of images of a step stays, unless `accumulate` is given.

    Args:
        recipe: Of the run.
        keywords: Those that are set.
        batch: Images of a process at once.
        accumulate: Batches of a step.
        processes: Their number.

    >>> from longtail.recipes.signatures import read
    >>> row = {"batch": 128, "accumulate": 8}
    >>> divided(read("vit"), row, batch=64, processes=8)
    {'batch': 512, 'accumulate': 2}
    """
    if "batch" not in recipe.parameters:
        raise LongtailError(f"--batch has no effect with {recipe.name}, which has no batches")
    if batch < 1:
        raise LongtailError(f"--batch must be at least 1, got {batch}")
    changed: dict[str, int] = {}
    for name, factor in BATCHES:
        # A stage for which a row has no settings may be left out of its run
        if name not in recipe.parameters or (name != "batch" and name not in keywords):
            continue
        defaults = recipe.parameters
        images = keywords.get(name, defaults[name].default)
        if factor in defaults:
            images *= keywords.get(factor, defaults[factor].default)
        at_once = batch * processes
        if accumulate is None and images % at_once:
            most = images // processes
            fitting = [count for count in range(1, most + 1) if images % (count * processes) == 0]
            raise LongtailError(
                f"a step has {images} images ({name} x {factor}), which {processes} processes with"
                f" --batch {batch} cannot share: pass --accumulate, or --batch with one of"
                f" {', '.join(map(str, fitting)) or 'no number: start fewer processes'}"
            )
        changed[name] = at_once
        times = images // at_once if accumulate is None else accumulate
        if factor in defaults:
            changed[factor] = times
        elif times != 1:
            raise LongtailError(
                f"{recipe.name} does not accumulate: pass --batch {images // processes}"
            )
    return changed


def kept_together(
    recipe: Recipe, keywords: Mapping[str, Any], *, together: int, processes: int, name: str
) -> dict[str, str]:
    """The keyword with which as many images attend to each other in several processes as in one.

    Args:
        recipe: of the row.
        keywords: all of them.
        together: how many images attend to each other in the published row; 0 without BatchFormer.
        processes: that train together.
        name: of the row, for the message.
    """
    if processes == 1 or not attending(keywords):
        return {}
    batch = int(keywords["batch"])
    if batch == together * processes:  # each process has as many
        return {}
    across = "batchformer_scope" in recipe.parameters
    if across and batch == together and batch % processes == 0:
        return {"batchformer_scope": "global"}
    images = batch * int(keywords.get("accumulate", 1))
    counts = range(1, processes + 1)
    shared = [count for count in counts if together % count == 0] if across else [1]
    divisors = [count for count in counts if images % (together * count) == 0]
    raise LongtailError(
        f"{together} images attend together in BatchFormer of {name}, which {processes} processes"
        f" with {batch} images ({batch // processes} each) cannot keep: start"
        f" {_either(shared)} without --batch"
        + f", or {_either(divisors)} with --batch {together}"
        * bool(divisors)
    )


def _either(counts: Sequence[int]) -> str:
    """Join numbers by commas and a last "or".

    >>> _either([1, 2, 4])
    '1, 2 or 4'
    """
    return " or ".join([*[", ".join(map(str, counts[:-1]))] * (len(counts) > 1), str(counts[-1])])
