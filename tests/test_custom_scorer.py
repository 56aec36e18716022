"""Data that brings its scorer is trained, selected, evaluated, compared and reported by it, without
an edit in src.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import longtail
from longtail.cli.main import app
from longtail.records.predictions import read_predictions
from longtail.records.row import read_row
from longtail.records.scores import Headline
from longtail.report.comparison import compare
from longtail.runs import evaluate, results, train

OUR_DATA = '''
from dataclasses import dataclass, replace

import numpy as np

from longtail.data.readers.digits import digits
from longtail.records.scores import label

DOMAINS = ("chalk", "pen")


@dataclass(frozen=True)
class Domains:
    """Accuracy on the worst domain, and the negative log likelihood."""

    headline: str = "worst_domain"
    labels = {
        "worst_domain": label("worst domain", description="accuracy on the worst domain"),
        "nll": label("NLL", format="plain", higher_is_better=False),
        "domain": label("accuracy", description="Accuracy on each domain"),
    }

    def __call__(self, predictions):
        logits, target = predictions.logits["logits"].astype(np.float64), predictions.target
        right, domain = logits.argmax(1) == target, predictions.columns["domain"]
        each = {name: right[domain == index].mean() for index, name in enumerate(DOMAINS)}
        likelihood = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
        return {
            "worst_domain": min(each.values()),
            "nll": -likelihood[np.arange(len(target)), target].mean(),
            **{f"domain/{name}": value for name, value in each.items()},
        }


class Unlabelled(Domains):
    labels = {"worst_domain": label("worst domain")}


def source(scorer):
    plain = digits()
    splits = {
        name: replace(rows, columns={"domain": np.array([int(key[7:]) % 2 for key in rows.ids])})
        for name, rows in plain.splits.items()
    }
    return replace(plain, name="chalk-and-pen", splits=splits, scorer=scorer)


def worst():
    return source(Domains())


def likely():
    return source(Domains(headline="nll"))


def broken():
    return source(Unlabelled())
'''
QUICK: dict[str, Any] = {
    "network": "fast_cnn",
    "epochs": 4,
    "batch": 32,
    "keep": "best",
    "device": "cpu",
    "threads": 1,
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("expected")
    (folder / "our_domains.py").write_text(OUR_DATA)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        patch.chdir(folder)
        for name, data, recipe in (
            ("plain", "worst", "cross_entropy"),
            ("balanced", "worst", "balanced_softmax"),
            ("likely", "likely", "cross_entropy"),
        ):
            train(recipe, f"our_domains:{data}", folder / name, **QUICK)
        yield folder


def expected(folder: Path) -> tuple[float, float]:
    """Worst domain and NLL on the test images, one image after the other."""
    predictions, ids = read_predictions(folder / "predictions" / "test.npz")
    right: dict[int, list[bool]] = {0: [], 1: []}
    losses = []
    for row, target, name in zip(
        predictions.logits["logits"].tolist(), predictions.target, ids, strict=True
    ):
        right[int(name.removeprefix("digits/")) % 2].append(row.index(max(row)) == target)
        losses.append(
            max(row) + np.log(sum(np.exp(logit - max(row)) for logit in row)) - row[target]
        )
    return min(sum(values) / len(values) for values in right.values()), float(np.mean(losses))


@pytest.mark.parametrize(
    ("name", "headline", "choose"), [("plain", "worst_domain", max), ("likely", "nll", min)]
)
def test_the_best_epoch_is_chosen_by_the_headline_in_its_direction(
    runs: Path, name: str, headline: str, choose: Callable[..., Any]
) -> None:
    row = read_row(runs / name)
    journal = (runs / name / "train" / "journal.jsonl").read_text().splitlines()
    key = f"ema/val/{headline}"
    values = {line["epoch"]: line[key] for line in map(json.loads, journal) if key in line}
    assert len(set(values.values())) > 1
    best = choose(values, key=values.__getitem__)
    assert row["selection"] == f"best {key}"
    assert row["best_validation"] == {"epoch": best, "value": values[best]}
    assert row["headline"] == {"name": headline, "higher_is_better": choose is max}
    assert row["val"] is not None
    assert row["val"]["scores"][headline] == pytest.approx(values[best], abs=1e-5)


def test_without_keep_best_the_row_names_the_epoch_in_that_direction(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    lines = [
        {"kind": "epoch", "epoch": epoch, "step": epoch, "val/nll": value}
        for epoch, value in ((1, 0.7), (2, 0.4), (3, 0.4))
    ]
    (tmp_path / "train" / "journal.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    history = [{"name": "train", "keep": "last epoch", "best": None}]
    headline: Headline = {"name": "nll", "higher_is_better": False}
    assert results._best(tmp_path, history, headline) == {"epoch": 2, "value": 0.4}
    headline["higher_is_better"] = True
    assert results._best(tmp_path, history, headline) == {"epoch": 1, "value": 0.7}


def test_the_row_has_its_scores_and_the_long_tailed_ones(runs: Path) -> None:
    row = read_row(runs / "plain")
    assert row["test"] is not None
    scores = row["test"]["scores"]
    assert (scores["worst_domain"], scores["nll"]) == pytest.approx(
        expected(runs / "plain"), rel=1e-5
    )
    assert min(scores["domain/chalk"] or 0, scores["domain/pen"] or 0) == scores["worst_domain"]
    assert scores["balanced"] == row["test"]["balanced"]
    assert scores["few"] == row["test"]["groups"]["few"]
    assert [*row["labels"]][:3] == ["worst_domain", "nll", "domain"]
    assert "accuracy on the worst domain" in (runs / "plain" / "model" / "README.md").read_text()


def test_compare_ranks_by_the_headline_and_shows_all_scores(runs: Path) -> None:
    rows = [read_row(runs / name) for name in ("plain", "balanced")]
    table = compare(rows)
    assert table.columns()[1:9] == (
        "worst domain",
        "NLL",
        "overall",
        "balanced",
        "many",
        "medium",
        "few",
        "ece",
    )
    means = [
        line.scores["worst_domain"].mean for line in table.lines if line.scores["worst_domain"]
    ]
    assert means == sorted(means, reverse=True)
    assert len(set(means)) == 2
    assert [line.difference for line in table.lines] == [None, None]  # no mean over images
    assert table.cells()[0][2] == f"{table.lines[0].scores['nll'].mean:.3f}"  # type: ignore[union-attr]
    for row in rows:
        row["headline"] = {"name": "nll", "higher_is_better": False}
    means = [line.scores["nll"].mean for line in compare(rows).lines if line.scores["nll"]]
    assert means == sorted(means)
    with pytest.raises(
        longtail.errors.LongtailError, match=r"ranked by different scores, nll .* and worst"
    ):
        compare([rows[0], read_row(runs / "balanced")], across=["selection"])


def test_reports_and_eval_show_it(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = (runs / "plain" / "report.html").read_text()
    worst, nll = expected(runs / "plain")
    for words in (
        f"<dt>accuracy on the worst domain</dt><dd>{100 * worst:.1f}%</dd>",
        f"<dt>NLL</dt><dd>{nll:.3f}</dd>",
        "Runs on this data are ranked by accuracy on the worst domain",
        "Accuracy on each domain",
    ):
        assert words in page
    out = runs / "both.html"
    app(
        ["report", str(runs / "plain"), str(runs / "balanced"), "--out", str(out)],
        standalone_mode=False,
    )
    assert "has the highest accuracy on the worst domain" in out.read_text()

    with pytest.raises(
        longtail.errors.LongtailError, match=r"our_domains:worst is code .* --trust"
    ):
        evaluate(runs / "plain", device="cpu", threads=1)
    capsys.readouterr()
    command = ["eval", str(runs / "plain"), "--trust", "--device", "cpu", "--threads", "1"]
    app(command, standalone_mode=False)
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["worst", "domain", "NLL", "overall", "balanced", "many", "medium", "few"] in printed
    assert next(line for line in printed if line[:1] == ["test"])[1:3] == [
        f"{100 * worst:.1f}",
        f"{nll:.3f}",
    ]


def test_a_scorer_that_cannot_score_is_refused_before_training(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(longtail.errors.LongtailError, match="give each score a label"):
        train("cross_entropy", "our_domains:broken", tmp_path / "run", **QUICK)
    assert not (tmp_path / "run").exists()
