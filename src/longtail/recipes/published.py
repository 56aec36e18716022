"""Published rows by name: what was published, with which settings, and how near is near enough.

The rows are in the files of `data/published`. Values are fractions here, as in a run's row.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

from longtail.data.names import KNOWN
from longtail.data.request import data_flags
from longtail.deprecated import run_keywords
from longtail.errors import LongtailError
from longtail.naming import unknown
from longtail.recipes.data_files import build, read_toml
from longtail.recipes.signatures import read
from longtail.recipes.together import attending, differences
from longtail.records.row import Row, geometry_of, mirrored

_FOLDER = Path(__file__).parent / "data" / "published"
_TABLES = ("differs", "settings", "rows", "smokes", "quotes")
_SQUARE = ("cifar10-lt", "cifar100-lt", "digits-lt")
_FOLDERS = (
    *("imagenet-lt", "imagenet-bal", "places-lt", "inaturalist18"),
    *("mit-states", "ut-zappos", "c-gqa"),
)
_POINTS = 1.0  # around the value of a row whose source gives no deviation
_SMOKE_POINTS = 12.0  # around the value of a smoke


@dataclass(frozen=True, kw_only=True)
class Smoke:
    """The recipe of a published row on long-tailed digits, in minutes of a CPU: does it run and
    learn?

    `value` is the mean over the three seeds of `arm` in the plan digits_lt_smokes. It says nothing
    about the published number.
    """

    arm: str
    value: float
    low: float
    high: float
    keywords: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Quote:
    """A line of a table that the paper copied from another, with its numbers as printed."""

    method: str
    origin: str
    values: Mapping[str, float]
    row: str = ""  # the published row with these settings, if there is one


@dataclass(frozen=True, kw_only=True)
class Published:
    """A row of a table: accuracy as a fraction, its band, and the settings that belong to it.

    A row without a value is in no table: other rows start from its run.
    """

    name: str
    recipe: str
    data: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    source: str
    quoted: str = ""  # whose number it is, if the paper did not train this row
    band: str = "one point around the value: the paper gives no deviation"
    keywords: Mapping[str, Any] = field(default_factory=dict)  # what is not the recipe's default
    together: int = 0  # how many images attend to each other in BatchFormer, if not all of a batch
    imbalance: float | None = None
    geometry: Literal["pad", "crop", "stretch"] | None = None  # the data's, if not given
    protocol: Literal["holdout", "paper", "adapt"] = "paper"
    request: Mapping[str, Any] = field(default_factory=dict)  # further flags of the data
    test_domains: tuple[str, ...] = ()  # a run leaves out each; the value is their mean
    tta: Literal["none", "flip"] = "none"
    metric: str = "top1"  # one of the scores of a run
    columns: Mapping[str, float] = field(default_factory=dict)
    """The other published numbers, as fractions: scores of a run, ece and mce, or "HEAD/SCORE"."""
    confidence: Literal["softmax", "sigmoid"] = "softmax"  # of ece and mce
    group_sizes: tuple[int, ...] = ()
    """How many classes the paper counts as many, medium and few; as the data has them if empty."""
    tables: tuple[str, ...] = ()  # further tables with this row, such as "livt-6"
    printed: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """The numbers of a table that has others than its source, such as {"livt-6": {"few": 0.41}}."""
    begins_with: Mapping[str, str] = field(default_factory=dict)
    """The published row whose run is given to a keyword, such as {"teacher": ROW}."""
    seeds: tuple[int, ...] = (0, 1, 2)
    cost: str = ""  # as its authors state it
    needs: Mapping[str, str] = field(default_factory=dict)
    """Keywords and data flags that only the user can give."""
    differs: tuple[str, ...] = ()  # from what was published
    smoke: str | None = None

    @property
    def in_tables(self) -> tuple[str, ...]:
        """The tables with this row: those of its source, then the others.

        >>> published()["cifar100-lt-paco"].in_tables
        ('batchformer-1',)
        """
        paper = re.search(r"\(([\w-]+)\), ", self.source)
        matches = re.findall(r"(appendix )?table ([\w.]+)", self.source) if paper else []
        named = [f"{paper[1]}-{'a' * bool(a)}{number}".lower() for a, number in matches if paper]
        return (*named, *self.tables)

    def flags(self) -> dict[str, Any]:
        """The flags of the data and of the evaluation."""
        geometry = {} if self.geometry is None else {"geometry": self.geometry}
        flags = {"imbalance": self.imbalance, "protocol": self.protocol, "tta": self.tta}
        return flags | geometry | dict(self.request)

    @property
    def images_together(self) -> int:
        """How many images attend to each other in BatchFormer, 0 without it.

        >>> rows = published()
        >>> names = ("imagenet-lt-balanced-softmax-batchformer", "imagenet-moco-v3-batchformer")
        >>> [rows[name].images_together for name in names]
        [128, 256]
        """
        keywords = self.all_keywords(dict.fromkeys(self.needed_keywords, "given"))
        return attending(keywords) and (self.together or attending(keywords))

    @property
    def is_folder(self) -> bool:
        """Whether the data is a folder of the user, which `--root` names."""
        return self.data not in KNOWN

    @property
    def is_streamed(self) -> bool:
        """Whether its images are so many and so large that they are read when they are needed."""
        return self.is_folder or self.data in _FOLDERS

    @property
    def needed_keywords(self) -> list[str]:
        """The keywords of the recipe that only the user can give, or that name another run."""
        return [name for name in (*self.needs, *self.begins_with) if name not in data_flags()]

    @property
    def is_pretrained(self) -> bool:
        """Whether its network starts from weights that other data trained."""
        return self.learnt_from is not None

    @property
    def learnt_from(self) -> str | None:
        """What trained the initial weights, if it was not the row's data; "" if it is not known."""
        before = self.begins_with.get("weights")
        if before is not None:
            data = published()[before].data
            return None if data == self.data else data
        given = "weights" in self.needs or self.keywords.get("weights") == "timm"
        return "" if given else None

    @property
    def column_names(self) -> tuple[str, ...]:
        """The scores besides the value that a table has of this row."""
        further = [
            name for scores in self.printed.values() for name in scores if name != self.metric
        ]
        return tuple(dict.fromkeys([*self.columns, *further]))

    def numbers(self, table: str | None = None) -> dict[str, float]:
        """The published scores by name, the value first, as a table has them.

        >>> row = published()["imagenet-lt-livt"]
        >>> row.numbers()["medium"], row.numbers("livt-6")["medium"]
        (0.564, 0.558)
        """
        value = {} if self.value is None else {self.metric: self.value}
        return {**value, **self.columns, **self.printed.get(table or "", {})}

    def all_keywords(self, needed: Mapping[str, Any]) -> dict[str, Any]:
        """The values of all keywords of its recipe, with these of the user."""
        return read(self.recipe).keywords({**self.keywords, **needed})

    def verdict(
        self, measured: float, smoke: Smoke | None = None
    ) -> Literal["inside", "below", "above", "finished"]:
        """Where a measured fraction lies; ends of the band are inside.

        A row without a published value is only finished.
        """
        low, high = (self.low, self.high) if smoke is None else (smoke.low, smoke.high)
        if low is None or high is None:
            return "finished"
        return "below" if measured < low else "above" if measured > high else "inside"


@cache
def published() -> dict[str, Published]:
    """Every published row that a recipe can run, by name."""
    return {name: _row(name) for name in _content()["rows"]}


@cache
def _row(name: str) -> Published:
    content = _content()
    entry = content["rows"][name]
    differs = [_named(content, "differs", text, name) for text in entry.get("differs", ())]
    entry = {**_measured(content, entry, name, points=_POINTS), "differs": differs}
    return build(Published, {"name": name, **entry}, where=name)


def listed() -> dict[str, dict[str, str]]:
    """Every row with its value, band, needs and cost as text, by source and name."""
    sources: dict[str, dict[str, str]] = {}
    for name, row in published().items():
        images = ["images"] * row.is_streamed
        needs = " and ".join([*row.needs, *images])
        words = [band_of(row) or "no published value"]
        words += [f"quoted from {row.quoted}"] * bool(row.quoted)
        together = row.images_together
        words += [f"{together} images attend together"] * bool(together)
        words += [f"needs {needs}"] * bool(needs) + [row.cost] * bool(row.cost)
        source = "our own results" if row.source.startswith("our own") else row.source
        sources.setdefault(source, {})[name] = "; ".join(words)
    return sources


def band_of(target: Published | Smoke) -> str:
    """The value and the band in percent; empty for a row without a published value.

    >>> band_of(published()["cifar100-lt-paco"])
    '51.9 (50.9 to 52.9)'
    """
    if target.value is None or target.low is None or target.high is None:
        return ""
    return f"{100 * target.value:.1f} ({100 * target.low:.1f} to {100 * target.high:.1f})"


@cache
def quotes() -> dict[str, tuple[Quote, ...]]:
    """The lines of published tables that were copied from other papers, by table."""
    return {
        table: tuple(build(Quote, entry, where=f"quotes of {table}") for entry in entries)
        for table, entries in _content()["quotes"].items()
    }


@cache
def tables() -> dict[str, tuple[str, ...]]:
    """The names of the rows of each published table, by table: "batchformer-1", "livt-a3"."""
    rows: dict[str, list[str]] = {}
    for name, row in published().items():
        for table in row.in_tables:
            rows.setdefault(table, []).append(name)
    return {table: tuple(rows[table]) for table in sorted(rows)}


@cache
def smokes() -> dict[str, Smoke]:
    """What `longtail reproduce NAME --smoke` runs, by the arm of the plan that measured it."""
    content = _content()
    return {
        arm: build(
            Smoke,
            {"arm": arm, **_measured(content, entry, arm, points=_SMOKE_POINTS)},
            where=f"smoke {arm}",
        )
        for arm, entry in content["smokes"].items()
    }


@cache
def train_images() -> dict[tuple[str, float | None], int]:
    """Training images by dataset and imbalance, before validation is held out."""
    entries = _content()["images"]
    return {(entry["data"], entry.get("imbalance")): entry["images"] for entry in entries}


@cache
def _content() -> dict[str, Any]:
    return merged({path.name: read_toml(path) for path in sorted(_FOLDER.glob("*.toml"))})


def merged(files: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The tables of several files as those of one; a name that two files define is refused."""
    content: dict[str, Any] = {"images": []} | {table: {} for table in _TABLES}
    origin: dict[tuple[str, str], str] = {}
    for file, tables in files.items():
        for table, entries in tables.items():
            if table not in content:
                raise unknown(f"table of {file}", table, content)
            if table == "images":
                content["images"] += entries
                continue
            for name in entries:
                if (table, name) in origin:
                    raise LongtailError(
                        f"{table}.{name} is in {origin[table, name]} and in {file}: rename one"
                    )
                origin[table, name] = file
            content[table] |= entries
    return content


def _measured(
    content: Mapping[str, Any], entry: Mapping[str, Any], name: str, *, points: float
) -> dict[str, Any]:
    """An entry with fractions instead of percent, its band, and the keywords of its groups."""
    band: dict[str, Any] = {"band": "no table has this row"}
    if "value" in entry:
        band = {"low": entry["value"] - points, "high": entry["value"] + points}
    entry = {**band, **entry}
    groups = [_named(content, "settings", group, name) for group in entry.pop("settings", ())]
    keywords = {
        key: value for group in (*groups, entry.get("keywords", {})) for key, value in group.items()
    }
    fractions = {"value", "low", "high"} & entry.keys()
    percent: dict[str, float] = {key: round(entry[key] / 100, 6) for key in fractions}
    if "columns" in entry:
        entry["columns"] = _fractions(entry["columns"])
    if "printed" in entry:
        entry["printed"] = {key: _fractions(scores) for key, scores in entry["printed"].items()}
    return {**entry, **percent, "keywords": keywords}


def _fractions(numbers: Mapping[str, float]) -> dict[str, float]:
    return {key: round(value / 100, 6) for key, value in numbers.items()}


def _named(content: Mapping[str, Any], table: str, name: str, row: str) -> Any:
    if name not in content[table]:
        raise unknown(f"entry of {table} in {row}", name, content[table])
    return content[table][name]


def match(row: Row) -> Published | None:
    """Find the published row that a finished run can be compared with.

    It has the same recipe with all its keywords, data, protocol and test-time averaging. Epochs are
    keywords, so a shorter run matches nothing. Which epoch a paper chose, and on what, is in
    `differs`. Of rows that differ only in the run that they begin with, it is the one that the
    folder of that run names, or else the first.
    """
    about = (row["recipe"], row["data"]["name"])
    if about[1] not in KNOWN:  # no file needs to be read
        return None
    entries = _content()["rows"].items()
    near = [_row(name) for name, entry in entries if (entry["recipe"], entry["data"]) == about]
    known = [entry for entry in near if _comparable(entry, row)]
    named = (entry for entry in known if entry.begins_with and _begins_with(entry, row))
    return next(named, next(iter(known), None))


def _begins_with(known: Published, row: Row) -> bool:
    """Whether the run began with runs in the folders that `reproduce` gives them."""
    given = row["keywords"]
    return all(
        Path(str(given.get(keyword))).parent.name == other
        for keyword, other in known.begins_with.items()
    )


def _geometries(known: Published) -> tuple[str, ...]:
    """The geometries that a run of this row may have."""
    if known.geometry is not None:
        return (known.geometry,)
    # Images that are squares and are not resized have no geometry to choose
    return ("pad", "crop", "stretch") if known.data in _SQUARE else ("crop",)


def _comparable(known: Published, row: Row) -> bool:
    data = row["data"]
    # One run is a part of a row of several domains
    if known.is_folder or known.test_domains or known.value is None:
        return False
    same = (
        data["protocol"] == known.protocol
        and row["tta"] == known.tta
        and "adjustment" not in row
        and mirrored(row) == (known.data != "digits-lt")
        and row["split_seed"] == 0
        and geometry_of(row)[0] in _geometries(known)
        and sum(data["counts_before"]) == train_images()[known.data, known.imbalance]
        and (row["pretraining"] is not None) == known.is_pretrained
        and str(row["pretraining"]).startswith(known.learnt_from or "")
    )
    if not same:
        return False
    expected = known.all_keywords(dict.fromkeys(known.needed_keywords, "given"))
    given = run_keywords(row["recipe"], row["keywords"])
    if given.keys() - expected.keys():
        return False
    used = {**expected, **given}  # a keyword that is newer than the run had its default
    if any(used[name] is None for name in known.needed_keywords):
        return False
    compared = {
        name: value for name, value in expected.items() if name not in known.needed_keywords
    }
    processes = row.get("hardware", {}).get("processes", 1)
    together = known.images_together
    changes = differences(
        read(known.recipe), compared, used, together=together, processes=processes
    )
    return not any(changes)
