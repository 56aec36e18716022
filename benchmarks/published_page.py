"""Write docs/published.md: every table and figure of the three papers, and what we ran of it.

The rows are those of `longtail reproduce`, hours are those of `longtail.recipes.costs`, and an
outcome is computed from results in benchmarks/results by the contrasts of contrasts.toml.
render.py calls this.
"""

from __future__ import annotations

import json
import statistics
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import Any

from longtail.recipes import costs
from longtail.recipes.published import Published, published, quotes, tables
from longtail.records.row import row_of

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "published.md"
# Student's t, two-sided 95%, by degrees of freedom
T = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}
SEEDS = 3  # fewer test nothing
# The authors' students: row, GPU, how many, hours (DeiT-LT, section H)
AUTHORS = (
    ("cifar10-lt-deit-lt-paco", "RTX 3090", 2, 15),
    ("imagenet-lt-deit-lt-paco", "A5000", 4, 61),
    ("inaturalist18-deit-lt-paco", "A100", 4, 63),
)

HEAD = """# Published tables and figures

`benchmarks/render.py` writes this page from the rows of `longtail reproduce`, the results in
`benchmarks/results` and `benchmarks/contrasts.toml`; no number is typed by hand.
It lists every table and figure of the three papers; what belongs to another task leads to its page.

- **Rows** are the lines that its authors trained, of which the command runs each with its seeds;
  *quoted* lines were copied from other papers, and are printed beside them.
- **Hours** are those of all these rows with all their seeds on one A100, without rows of other
  tables that they begin with: see [the cost model](#the-cost-model), and beside it the hours that
  the authors state.
- **Outcome** compares two arms of a plan that we ran, at our scale, as the paper orders them: the
  mean difference in points over paired seeds, with its 95% interval (Student's t).
  *Agrees* and *disagrees* need {seeds} seeds and an interval without 0.
  *Undecided* has an interval with 0, *untested* too few seeds or none.
"""


@dataclass(frozen=True)
class Contrast:
    """The difference between two arms in points, over the seeds that both have."""

    seeds: int
    mean: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def outcome(self) -> str:
        """What it says of the order in the paper."""
        if self.seeds < SEEDS or self.low is None or self.high is None:
            return "untested"
        return "agrees" if self.low > 0 else "disagrees" if self.high < 0 else "undecided"


def contrast(better: Mapping[int, float], worse: Mapping[int, float]) -> Contrast:
    """Compare two arms by seed.

    >>> contrast({0: 2.0, 1: 3.0, 2: 4.0}, {0: 1.0, 1: 2.0, 2: 3.1}).outcome
    'agrees'
    >>> contrast({0: 2.0}, {0: 1.0}).outcome
    'untested'
    """
    both = sorted(better.keys() & worse.keys())
    gains = [better[seed] - worse[seed] for seed in both]
    if not gains:
        return Contrast(0)
    mean = statistics.fmean(gains)
    if len(gains) < 2:
        return Contrast(1, mean)
    half = T[len(gains) - 1] * statistics.stdev(gains) / len(gains) ** 0.5
    return Contrast(len(gains), mean, mean - half, mean + half)


def scores(results: Path, plan: str, arm: str, score: str) -> dict[int, float]:
    """A score of the finished runs of an arm in percent, by seed."""
    found = {}
    for path in sorted((results / plan).glob(f"{arm}-seed*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["arm"] != arm:  # its name ends like that of another
            continue
        row = row_of(content["row"], source=path)
        summary = row["test"] or row["val"]
        value = None if summary is None else _score(summary, score)
        if value is not None:
            found[int(row["seed"])] = 100 * value
    return found


def _score(summary: Mapping[str, Any], score: str) -> float | None:
    head, _, name = score.rpartition("/")
    numbers = summary["heads"][head] if head else summary
    value = numbers["groups"][name] if name in numbers["groups"] else numbers[name]
    return None if value is None else float(value)


def compared(entry: Mapping[str, Any], folder: Path = HERE) -> Contrast:
    """The contrast of an entry of contrasts.toml, from the results in a folder."""
    results, score = folder / "results", entry.get("score", "top1")
    return contrast(
        scores(results, entry["plan"], entry["better"], score),
        scores(
            results,
            entry.get("worse_plan", entry["plan"]),
            entry["worse"],
            entry.get("worse_score", score),
        ),
    )


def contrasts(folder: Path = HERE) -> dict[str, Any]:
    """The content of contrasts.toml."""
    return tomllib.loads((folder / "contrasts.toml").read_text(encoding="utf-8"))


def page(folder: Path = HERE) -> str:
    """The page, from the rows and the results in a folder."""
    content = contrasts(folder)
    entries = content.pop("contrasts")
    parts = [HEAD.format(seeds=SEEDS)]
    for paper in content.values():
        lines = [
            f"## {paper['title']}\n",
            "| table | shows | rows | command | needs | A100 hours | authors' own | outcome |",
            "|:--|:--|--:|:--|:--|--:|:--|:--|",
        ]
        for table, entry in paper["tables"].items():
            item = [one for one in entries if one["table"] == table]
            lines.append(_line(table, entry, [compared(one, folder).outcome for one in item]))
        tested = [one for one in entries if one["table"] in paper["tables"]]
        lines += ["", *_tested(tested, folder)]
        parts.append("\n".join(lines))
    parts.append("\n".join(_cost_model()))
    return "\n".join(parts)


def _line(table: str, entry: Mapping[str, Any], outcomes: Sequence[str]) -> str:
    name = table.split("-", 2)[2] if table.startswith("deit-lt") else table.split("-", 1)[1]
    words = name.replace("figure-", "figure ") if "figure" in name else f"table {name}"
    rows = [published()[item] for item in tables().get(table, ())]
    commands = [f"`longtail reproduce --table {table} --run`"] * bool(rows)
    commands += [f"`longtail sweep --name {sweep}`" for sweep in entry.get("sweeps", ())]
    if "page" in entry:
        outcome = f"[its page]({entry['page']})"
    elif "nothing" in entry:
        outcome = f"nothing to run: {entry['nothing']}"
    else:
        counted = {word: outcomes.count(word) for word in dict.fromkeys(outcomes)}
        outcome = ", ".join(f"{word} ({times})" for word, times in counted.items()) or "untested"
    cells = [
        words,
        entry["shows"],
        _count(table, rows),
        "<br>".join(commands) or "-",
        _needs(rows) or "-",
        _hours(rows),
        "<br>".join(dict.fromkeys(row.cost for row in rows if row.cost)) or "-",
        outcome,
    ]
    return f"| {' | '.join(cells)} |"


def _count(table: str, rows: Sequence[Published]) -> str:
    copied = len(quotes().get(table, ()))
    return f"{len(rows) or '-'}{f' + {copied} quoted' if copied else ''}"


def _needs(rows: Sequence[Published]) -> str:
    images = list(dict.fromkeys(f"{row.data} images" for row in rows))
    given = dict.fromkeys(f"`{name}` given" for row in rows for name in row.needs)
    return "<br>".join([*images, *given])


def _hours(rows: Sequence[Published]) -> str:
    total = costs.total_hours(rows)
    return "-" if total is None else f"{total:,.0f}" if total >= 10 else f"{total:.1f}"


def _tested(entries: Sequence[Mapping[str, Any]], folder: Path) -> Iterator[str]:
    yield "| table | the paper's order | ours, in points | outcome | scale and plan |"
    yield "|:--|:--|:--|:--|:--|"
    for entry in entries:
        found, plan = compared(entry, folder), entry["plan"]
        table = entry["table"].removeprefix("deit-lt-").removeprefix("livt-")
        measured = "not run"
        if found.mean is not None:
            measured = f"{found.mean:+.1f}"
        if found.low is not None:
            measured += f" ({found.low:+.1f} to {found.high:+.1f})"
        if found.seeds:
            measured += f", {found.seeds} seed{'s' * (found.seeds > 1)}"
        outcome = found.outcome
        if outcome == "disagrees":
            outcome += f": {entry.get('reason', 'no reason was looked for yet')}"
        link = f"[{plan.replace('_', ' ')}](results.md#{plan.replace('_', '-')})"
        cells = [
            table.removeprefix("batchformer-"),
            f"{entry['claim']} ({_sides(entry)})",
            measured,
            outcome,
            f"{_scale(folder, plan, entry['better'])}; {link}",
        ]
        yield f"| {' | '.join(cells)} |"
    yield ""


def _sides(entry: Mapping[str, Any]) -> str:
    score = entry.get("score", "top1")
    if "worse_score" in entry:
        better, worse = f"{entry['better']}`, {score}", f"{entry['worse']}`, {entry['worse_score']}"
        return f"`{better}, above `{worse}"
    return f"`{entry['better']}` above `{entry['worse']}`, {score}"


def _scale(folder: Path, plan: str, arm: str) -> str:
    """The data, network and epochs of an arm."""
    content = json.loads((folder / "plans" / f"{plan}.json").read_text(encoding="utf-8"))
    settings = {**content["settings"], **content["arms"][arm]}
    words = [content["data"].replace("{root}/", ""), settings.get("network", "")]
    words += [f"{settings['epochs']} epochs"] * (settings.get("epochs") is not None)
    words += ["validation images"] * (content.get("judged") == "validation")
    return ", ".join(word for word in words if word)


def _cost_model() -> Iterator[str]:
    peaks = ", ".join(f"{peak:g} for {gpu}" for gpu, peak in costs.PEAK.items())
    sentences = [
        "Hours are images × epochs × the operations of one image, over"
        f" {costs.SHARE:.0%} of the peak of a GPU.",
        "Operations are counted by torch (`benchmarks/network_flops.py`).",
        "Training has three times those of a forward pass, SAM twice that, and a teacher or a"
        " momentum encoder one forward pass more.",
        f"Peaks are teraflops a second of dense half precision: {peaks}.",
        "Networks for images of 32 pixels do not fill a GPU: expect several times the hours of rows"
        " with ResNet-32.",
        "Loading images, evaluation and BatchFormer (a few percent of a step) are left out.",
    ]
    yield "## The cost model\n"
    yield from (fill(sentence, 100) for sentence in sentences)
    yield "\nDeiT-LT's authors state the hours of three trainings of the student (section H):\n"
    yield "| row | GPUs | hours by the model | authors' hours | model / authors |"
    yield "|:--|:--|--:|--:|--:|"
    for name, gpu, many, stated in AUTHORS:
        item = costs.hours(published()[name], gpu)
        assert item is not None
        share = item / many / stated
        yield f"| {name} | {many} x {gpu} | {item / many:.0f} | {stated} | {share:.2f} |"
    yield ""


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
