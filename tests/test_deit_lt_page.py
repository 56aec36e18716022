"""The page about DeiT-LT points at lines that exist, at sweeps and keywords by their names, and its
example runs.
"""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path
from typing import Any

import deit_lt_gap

from longtail.experiments.spec import named_sweeps
from longtail.recipes.signatures import read

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "deit-lt.md").read_text(encoding="utf-8")
TEXT = " ".join(PAGE.split())


def test_sweeps_and_flags_have_their_names() -> None:
    assert set(re.findall(r"^\| `(deit-lt-[a-z-]+)` \|", PAGE, re.MULTILINE)) == {
        name for name in named_sweeps() if name.startswith("deit-lt-")
    }
    known = {
        name
        for recipe in ("deit_lt", "deit", "ldam", "paco", "vit_crt", "masked_autoencoder")
        for name in read(recipe).parameters
    }
    flags = {flag.replace("-", "_") for flag in re.findall(r"(?<![\w-])--([a-z-]+)", PAGE)}
    # drw is the released code's, clear that of `longtail cache`
    assert flags - known == {"data", "root", "out", "name", "drw", "clear"}


def test_our_numbers_are_on_the_page_of_results() -> None:
    plans = set(re.findall(r"results\.md#([a-z0-9-]+)", PAGE))
    assert len(plans) == 6
    for plan in plans:
        assert (ROOT / "benchmarks" / "plans" / f"{plan.replace('-', '_')}.json").exists()


def _numbers(name: str, split: str = "test") -> Any:
    """The numbers of a result."""
    return json.loads(
        (ROOT / "benchmarks" / "results" / f"{name}.json").read_text(encoding="utf-8")
    )["row"][split]


def balanced(name: str, split: str = "test") -> float:
    """Balanced accuracy of a result, in percent."""
    return float(100 * _numbers(name, split)["balanced"])


def test_our_numbers_are_those_of_the_results() -> None:
    tuned, published = (
        sum(balanced(f"deit_lt_teacher_tuning/{arm}-seed{split}", "val") for split in (0, 1)) / 2
        for arm in ("cosine-0.1", "steps-0.8")
    )
    assert f"{tuned - published:.0f} points below" in TEXT
    assert f"has {balanced('deit_lt_teachers/flat-seed0'):.1f}% on" in TEXT
    vit, student = (_numbers(f"deit_lt_cifar10_lt/{arm}-seed0") for arm in ("vit", "student"))
    heads = student["heads"]
    rows = {"`vit_mini` without a teacher": vit, "student, mean of both tokens": student}
    rows |= {
        "student, class token alone": heads["cls"],
        "student, distillation token alone": heads["dist"],
    }
    for name, row in rows.items():
        numbers = [row["balanced"], *(row["groups"][group] for group in ("many", "medium", "few"))]
        assert f"| {name} | {' | '.join(f'{100 * value:.1f}' for value in numbers)} |" in PAGE
    assert f"is {100 * (student['balanced'] - vit['balanced']):.0f} points above the same" in TEXT
    assert heads["dist"]["balanced"] > student["balanced"], (
        "the distillation token alone is the best"
    )


def test_the_minutes_are_those_of_the_results() -> None:
    def minutes(name: str) -> float:
        row = json.loads(
            (ROOT / "benchmarks" / "results" / f"{name}-seed0.json").read_text(encoding="utf-8")
        )["row"]
        return float(row["minutes"])

    teacher, vit, student = map(
        minutes, ("deit_lt_teachers/flat", "deit_lt_cifar10_lt/vit", "deit_lt_cifar10_lt/student")
    )
    assert teacher < vit
    assert f"took {vit + student:.0f} minutes on two cores" in TEXT
    assert (
        f"({teacher:.1f} and {vit:.1f} minutes on a thread), then the student ({student:.1f} on two"
        " threads)" in TEXT
    )


def test_three_seeds_say_what_the_page_says() -> None:
    vit, student = (
        [_numbers(f"deit_lt_seeds_cifar10_lt/{arm}-seed{seed}") for seed in (0, 1, 2)]
        for arm in ("vit", "student")
    )
    cls, dist = ([row["heads"][name] for row in student] for name in ("cls", "dist"))
    for group_rows in (vit, student, cls, dist):
        values = [100 * one["balanced"] for one in group_rows]
        assert f"{statistics.fmean(values):.1f} ± {statistics.stdev(values):.1f}%" in TEXT
    gaps = [
        100 * (one["balanced"] - other["balanced"]) for one, other in zip(student, vit, strict=True)
    ]
    assert (
        f"is {sum(gaps) / 3:.1f} points, and between {min(gaps):.1f} and {max(gaps):.1f} in every"
        " seed" in TEXT
    )
    for group, above, below in (("few", dist, cls), ("many", cls, dist)):
        assert all(
            one["groups"][group] > other["groups"][group]
            for one, other in zip(above, below, strict=True)
        )
        means = [100 * sum(one["groups"][group] for one in scores) / 3 for scores in (dist, cls)]
        assert f"on the {group} group {means[0]:.1f} and {means[1]:.1f}%" in TEXT
    assert all(
        one["balanced"] > other["balanced"] for one, other in zip(dist, student, strict=True)
    ), "the distillation token alone is best"


def test_a_retrained_classifier_is_above_the_student_in_every_seed() -> None:
    repeated, student = (
        [balanced(f"deit_lt_seeds_cifar10_lt/{arm}-seed{seed}") for seed in (0, 1, 2)]
        for arm in ("vit-crt", "student")
    )
    assert f"{statistics.fmean(repeated):.1f} ± {statistics.stdev(repeated):.1f}%" in TEXT
    assert all(one > other for one, other in zip(repeated, student, strict=True))


def test_the_cost_of_caching_is_that_of_the_results() -> None:
    figures = json.loads(
        (ROOT / "benchmarks" / "results" / "speed" / "deit_lt_speed.json").read_text()
    )["figures"].values()
    ran = [figure for figure in figures if "remembered_ms" in figure]
    assert len(ran) == 4
    over, share = (
        [figure[f"remembered_{kind}_percent"] for figure in ran] for kind in ("over", "share")
    )
    assert f"reading cached classes takes {max(share):.2f}% of a step at most" in TEXT
    assert (
        f"Complete steps with and without it, in turns, differ by {min(over):.1f} to"
        f" {max(over):.1f}%" in TEXT
    )
    assert max(share) < 2, "the limit that was set"


def test_table_1_says_what_the_page_says() -> None:
    few, seeds = [], (0, 1, 2)
    means: dict[str, list[float]] = {}
    for arm in ("strong-mixed-views", "weak-views"):
        names = [f"deit_lt_augmentation_cifar10_lt/{arm}-seed{seed}" for seed in seeds]
        rows = [
            (numbers, numbers["heads"]["cls"], numbers["heads"]["dist"])
            for numbers in map(_numbers, names)
        ]
        few += [100 * one["groups"]["few"] for row in rows for one in row]
        scores = [[100 * one["balanced"] for one in row] for row in rows]
        means[arm] = [statistics.fmean(column) for column in zip(*scores, strict=True)]
        assert (
            f"{means[arm][0]:.1f} ± {statistics.stdev(score[0] for score in scores):.1f}%" in TEXT
        )
        curves = [
            json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text())["curve"][
                "student"
            ]
            for name in names
        ]
        agreed = 100 * statistics.fmean(curve[-1]["notes/agreement"] for curve in curves)
        stated = "the label" if arm == "weak-views" else "it"
        assert f"the teacher predicts {stated} in {agreed:.0f}%" in TEXT
    (_, out_cls, out_dist), (_, own_cls, own_dist) = means.values()
    assert f"({own_dist:.1f} and {own_cls:.1f}%)" in TEXT
    assert f"at {out_dist:.1f}%, is {out_dist - out_cls:.1f} points above the class token" in TEXT
    assert f"Neither recognises the few group, {max(few):.1f}% at best" in TEXT
    order = [
        balanced(f"deit_lt_augmentation_cifar10_lt/strong-mixed-views-seed{seed}")
        > balanced(f"deit_lt_augmentation_cifar10_lt/weak-views-seed{seed}")
        for seed in seeds
    ]
    assert order == [True, False, False], "one seed is in the paper's order, two are not"


def test_the_release_says_what_the_page_says() -> None:
    released, plain = (
        _numbers(f"deit_lt_seeds_cifar10_lt/{arm}-seed0") for arm in ("released", "student")
    )
    new, old = released["heads"]["dist"], plain["heads"]["dist"]
    assert (
        f"alone has {100 * new['balanced']:.1f}%, in the plain student {100 * old['balanced']:.1f}%"
        in TEXT
    )
    for group in ("many", "few"):
        assert (
            f"({100 * new['groups'][group]:.1f} against {100 * old['groups'][group]:.1f}% on the"
            f" {group} group)" in TEXT
        )
    assert (
        f"the mean of both tokens has {100 * released['balanced']:.1f} against"
        f" {100 * plain['balanced']:.1f}%" in TEXT
    )


def test_the_example_runs() -> None:
    example = next(
        text
        for text in re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
        if "DistillTokens" in text
    )
    names: dict[str, object] = {}
    exec(compile(example, "deit-lt.md", "exec"), names)


def test_the_gap_is_to_the_teachers_last_epoch(tmp_path: Path) -> None:
    lines = [
        {"epoch": 1, "val/balanced": 0.3, "val/cls/balanced": 0.2, "val/dist/balanced": 0.1},
        {"epoch": 2, "val/balanced": 0.8},
    ]
    for name, content in {
        "deit_lt_cifar10_lt/student": {
            "curve": {"student": lines},
            "begun_with": {"deit_lt_teachers/flat-seed0": 0.5},
        },
        "deit_lt_cifar10_lt/vit": {"curve": {"train": lines[:1]}},
    }.items():
        path = tmp_path / f"{name}-seed0.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content))
    gaps = {
        name: [(x, round(y, 6)) for x, y in line]
        for name, line in deit_lt_gap.gaps(tmp_path).items()
    }
    assert gaps == {
        "student": [(1, -20), (2, 30)],
        "CLS alone": [(1, -30)],
        "DIST alone": [(1, -40)],
        "no teacher": [(1, -20)],
    }
