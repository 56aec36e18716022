"""Broken run folders: predict, eval, export, serve, report, compare, embed, and resuming."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from hostile_cases import Case, Place, train

DEEP = "[" * 200_000

Damage = Callable[[Path], object]


def _replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: dict[str, Damage] = {
    "empty": lambda path: path.write_bytes(b""),
    "garbage": lambda path: path.write_bytes(bytes(range(256)) * 8),
    "cut": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "a-list": lambda path: path.write_text("[]"),
    "other-keys": lambda path: path.write_text('{"a": 1}'),
    "deep": lambda path: path.write_text(DEEP),
    "missing": lambda path: path.unlink(),
    "a-folder": _replace_by_folder,
}

VERBS: dict[str, tuple[str, ...]] = {
    "predict": ("predict", "run", "photos"),
    "eval": ("eval", "run", "--device", "cpu"),
    "export": ("export", "run", "--to", "torch", "--images", "4"),
    "serve": ("serve", "run", "--port", "0"),
    "report": ("report", "run", "--out", "page.html"),
    "compare": ("compare", "run", "other"),
    "embed": ("embed", "photos", "--network", "run", "--out", "features.npz"),
}


def _setup(file: str, damage: Damage) -> Callable[[Place], None]:
    def setup(place: Place) -> None:
        place.photos()
        place.run("other", of="other")
        damage(place.run() / file)

    return setup


def _damaged(verb: str, file: str, damage: str) -> Case:
    name = file.rpartition("/")[2].replace(".", "-")
    return Case(
        f"{verb}-{name}-{damage}",
        VERBS[verb],
        point=8,
        message="error: ",
        setup=_setup(file, DAMAGES[damage]),
    )


def _row(change: Callable[[dict[str, object]], object]) -> Callable[[Place], None]:
    def setup(place: Place) -> None:
        path = place.run() / "row.json"
        row = json.loads(path.read_text())
        change(row)
        path.write_text(json.dumps(row))
        place.run("other", of="other")

    return setup


def _reports_exist(place: Place, output: str) -> None:
    assert (place / "out" / "report.html").stat().st_size > 10_000


def _finished_without(name: str) -> Callable[[Place], None]:
    def setup(place: Place) -> None:
        photos = place.photos()
        run = place.run("out")
        record = json.loads((run / "recipe.json").read_text())
        text = json.dumps(record).replace(str(place.fixtures / "photos"), str(photos))
        (run / "recipe.json").write_text(text)
        path = run / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    return setup


def _neighbour(content: str | None) -> Callable[[Place], None]:
    def setup(place: Place) -> None:
        place.photos()
        (place / "near").mkdir()
        if content is None:
            (place / "near" / "row.json").mkdir()
        else:
            place.write("near/row.json", content)

    return setup


CASES = [
    *(
        _damaged(verb, "row.json", damage)
        for verb in ("predict", "eval", "export", "report", "compare")
        for damage in ("empty", "garbage", "a-list", "other-keys", "deep", "missing", "a-folder")
    ),
    *(
        _damaged(verb, "model/spec.json", damage)
        for verb in ("predict", "serve", "export", "embed")
        for damage in ("empty", "a-list", "other-keys", "deep", "a-folder")
    ),
    *(
        _damaged(verb, "model/model.safetensors", damage)
        for verb in ("predict", "serve", "embed")
        for damage in ("empty", "garbage", "cut", "missing", "a-folder")
    ),
    *(
        _damaged("eval", "recipe.json", damage)
        for damage in ("empty", "a-list", "other-keys", "deep")
    ),
    *(
        Case(f"{verb}-nothing-there", (verb, "nowhere", *more), point=8, message="error: ")
        for verb, more in (
            ("predict", ("a.png",)),
            ("eval", ()),
            ("export", ("--to", "torch")),
            ("serve", ("--port", "0")),
            ("report", ()),
        )
    ),
    *(
        Case(
            f"{verb}-a-file",
            (verb, "file", *more),
            point=8,
            message="error: ",
            setup=lambda place: place.write("file", "x"),
        )
        for verb, more in (("eval", ()), ("export", ("--to", "torch")), ("report", ()))
    ),
    Case("compare-one-run", ("compare", "run"), code=0, setup=lambda place: place.run()),
    Case("compare-nothing", ("compare",), message="Missing argument"),
    Case(
        "compare-unknown-across",
        ("compare", "run", "other", "--across", "colour"),
        message="error: .*colour",
        setup=_row(lambda row: None),
    ),
    Case(
        "compare-unknown-by",
        ("compare", "run", "other", "--by", "colour"),
        message="error: .*colour",
        setup=_row(lambda row: None),
    ),
    Case(
        "compare-scores-nan",
        ("compare", "run", "other"),
        point=8,
        message="error: |other",
        code=2,
        setup=_row(lambda row: row.update(test={"top1": float("nan")})),
    ),
    Case("report-of-nothing", ("report",), message="Missing argument"),
    Case("report-root-folder", ("report", "/"), point=8, message="error: "),
    Case("report-proc", ("report", "/proc"), point=8, message="error: "),
    *(
        Case(
            f"train-neighbour-{name}",
            train(),
            point=7,
            code=0,
            message="run: ",
            setup=_neighbour(content),
        )
        for name, content in {
            "empty": "",
            "null-data": '{"data": null}',
            "list": "[]",
            "deep": DEEP,
            "folder": None,
        }.items()
    ),
    *(
        Case(
            f"train-again-without-{name.replace('/', '-').replace('.', '-')}",
            train(),
            point=10,
            code=0,
            message="finished before",
            setup=_finished_without(name),
            check=_reports_exist,
            may_change=("out/*",),
        )
        for name in ("report.html", "model/README.md", "analysis", "sessions.jsonl", "recipe.py")
    ),
    *(
        Case(
            f"train-checkpoint-{damage}",
            train(),
            point=8,
            message="error: .*last.pt",
            setup=lambda place, damage=damage: (  # type: ignore[misc]
                _finished_without("row.json")(place),
                (place / "out" / "train" / "done").unlink(missing_ok=True),
                DAMAGES[damage](place / "out" / "train" / "last.pt"),
            ),
            may_change=("out/*",),
        )
        for damage in ("empty", "garbage", "cut")
    ),
    Case(
        "train-another-run-there",
        train("--seed", "5"),
        message="contains another run",
        setup=_finished_without("report.html"),
        may_change=("out/report.html",),
    ),
    Case(
        "train-out-is-a-file",
        train(),
        message="error: ",
        setup=lambda place: (place.photos(), place.write("out", "precious")),
    ),
    Case(
        "train-out-has-other-files",
        train(),
        message="other files",
        setup=lambda place: (place.photos(), place.write("out/thesis.tex", "precious")),
    ),
    Case(
        "train-out-is-a-broken-link",
        train(),
        code=0,
        setup=lambda place: (place.photos(), place.link("out", "elsewhere")),
    ),
]
