"""The docs say what is true: the tutorial runs, links lead somewhere, generated pages are fresh."""

from __future__ import annotations

import ast
import builtins
import importlib
import json
import re
import shlex
from pathlib import Path
from typing import Any

import picture
import published_page
import pytest
import render
import torch
from finished import complete_row
from PIL import Image

from longtail.cli.compare import ACROSS
from longtail.cli.main import app
from longtail.records.row import row_of
from longtail.report.agreement import MUST_AGREE

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")] + sorted(
    (ROOT / "docs").glob("*.md")
)
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> list[tuple[str, str]]:
    return FENCE.findall(page.read_text(encoding="utf-8"))


def undefined(text: str) -> list[str]:
    """Names that an example uses and nowhere defines. (The tutorial's go on with each other and are
    executed; design shows an excerpt.)
    """
    nodes = [*ast.walk(ast.parse(text))]
    bound = {*dir(builtins)} | {
        node.id
        for node in nodes
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
    }
    bound |= {
        (node.asname or node.name).partition(".")[0]
        for node in nodes
        if isinstance(node, ast.alias)
    }
    bound |= {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    bound |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    return sorted({node.id for node in nodes if isinstance(node, ast.Name)} - bound)


def typed(command: str) -> None:
    program, *words = shlex.split(command)
    assert program == "longtail", f"expected commands of longtail only, got {command!r}"
    app(words, standalone_mode=False)


def test_the_tutorial_runs_from_top_to_bottom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    printed = ""
    for language, text in blocks(ROOT / "docs" / "tutorial.md"):
        if language == "python":
            exec(compile(text, "tutorial.md", "exec"), names)
        elif language == "bash":
            for command in text.splitlines():
                typed(command)
        elif language == "text" and text.startswith("runs/"):
            for line in text.splitlines()[1:]:
                for name in line[: line.index("   ")].split():
                    assert (tmp_path / "runs" / "balanced" / name).exists(), (
                        f"the tutorial promises {name}"
                    )
        else:
            for line in text.splitlines():
                assert line in printed, f"the tutorial promises {line!r}, which was not printed"
        printed += capsys.readouterr().out
    assert names["model"].row["test"]["images"] == 500
    assert names["predictions"].probabilities.shape == (2, 10)
    assert "balanced_softmax" in (tmp_path / "comparison.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("page", "lines"), [("batchformer", 9), ("deit-lt", 16), ("livt", 12)])
def test_every_equation_leads_to_a_line(page: str, lines: int) -> None:
    def unbroken(code: str) -> str:
        """Without what a formatter may change: white space, commas before a closing bracket."""
        return re.sub(r"\s+|,(?=\s*[)\]}])", "", code)

    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    listed = re.findall(r"\| `(src/[^`]+)`: `([^`]+)` \|", text)
    assert len(listed) == lines
    for path, line in listed:
        source = (ROOT / path).read_text(encoding="utf-8")
        assert unbroken(line) in unbroken(source), f"{path} has no line {line!r}"


def test_custom_recipes_of_the_docs_train_as_they_stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    small = {
        "decoupled": "--network fast_cnn --epochs 1 --head-epochs 1",
        "consistent": "--epochs 1",
        "balanced_softmax": "--epochs 1",
    }
    Image.new("RGB", (8, 8)).save(tmp_path / "image.png")
    for language, text in blocks(ROOT / "docs" / "recipes.md"):
        if language == "python":
            (tmp_path / text.partition("\n")[0].removeprefix("# ")).write_text(text)
        else:
            for command in text.splitlines():
                verb, recipe = command.split()[1:3]
                if verb == "train" and "--help" not in command:
                    typed(f"{command} {small[recipe.partition(':')[0]]} --threads 1 --device cpu")
                elif verb == "train":
                    typed(command)
                    assert "--head-epochs" in capsys.readouterr().out
                elif verb == "predict":
                    typed(f"{command} --threads 1 --device cpu")
                else:
                    assert verb == "sweep"
    for name, stages in {"decoupled": {"features", "classifier"}, "consistent": {"train"}}.items():
        row = json.loads((tmp_path / "runs" / name / "row.json").read_text())
        assert {*row["epochs"]} == stages
        assert row["test"]["images"] == 500
    importlib.import_module("checks")
    poly = importlib.import_module("poly").Poly(2.0)
    logits, target = torch.randn(6, 4), torch.tensor([0, 1, 2, 3, 0, 1])
    slow = [
        -row.log_softmax(0)[c] + 2.0 * (1 - row.softmax(0)[c])
        for row, c in zip(logits, target, strict=True)
    ]
    assert torch.allclose(poly(logits, target), torch.stack(slow).mean())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_in_the_docs_compiles_and_commands_are_known(page: Path) -> None:
    verbs = {
        command.name or command.callback.__name__
        for command in app.registered_commands
        if command.callback
    } | {"train"}
    for language, text in blocks(page):
        if language == "python":
            unknown = undefined(text)
            assert not unknown or page.name in (
                "tutorial.md",
                "design.md",
            ), f"{page.name} uses {', '.join(unknown)} without an import"
        for verb in re.findall(r"^longtail (\S+)", text, re.MULTILINE):
            assert verb in verbs, f"{page.name} speaks of `longtail {verb}`"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_images_of_a_page_are_there(page: Path) -> None:
    # The strict build knows about links between pages, but neither about images nor about the
    # pages outside docs.
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text) + re.findall(
        r'(?:src|href)="([^"#]+)"', text
    ):
        if not target.startswith(("http://", "https://")):
            assert (page.parent / target).exists(), f"{page.name} points at {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_lines_of_a_page_have_at_most_100_columns(page: Path) -> None:
    if page.name == "results.md":
        pytest.skip("it is generated, and quotes plans as they were committed")
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    long = [line for line in text.splitlines() if len(line) > 100]
    # Tables and images cannot be broken; members of the API are one list.
    assert [line for line in long if not line.lstrip().startswith(("|", "![", "members:"))] == []


def test_every_page_is_in_the_navigation_once() -> None:
    navigation = re.findall(
        r"^  - .*?(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert sorted(navigation) == sorted(page.name for page in (ROOT / "docs").glob("*.md"))


def test_the_loop_on_the_design_page_is_the_loop() -> None:
    def joined(text: str) -> str:  # the formatter breaks lines by their indentation
        return "".join(line.partition("  # noqa")[0] for line in text.splitlines()).replace(" ", "")

    shown = next(
        text for language, text in blocks(ROOT / "docs" / "design.md") if language == "python"
    )
    assert len(shown.splitlines()) > 10
    source = (ROOT / "src" / "longtail" / "engine" / "fit.py").read_text(encoding="utf-8")
    assert joined(shown) in joined(source)


def test_every_part_on_the_api_page_exists() -> None:
    # The build fails for an unknown module, and leaves an unknown member out.
    documented = re.findall(
        r"^::: (\S+)(?:\n    options:\n      members: \[(.*?)\])?",
        (ROOT / "docs" / "api.md").read_text(),
        re.MULTILINE,
    )
    assert len(documented) > 20
    for module, members in documented:
        for name in members.split(", ") if members else ():
            assert hasattr(importlib.import_module(module), name), (
                f"api.md asks for {name} of {module}"
            )


def test_the_readme_shows_how_to_use_a_part(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = [
        text
        for language, text in blocks(ROOT / "README.md")
        if language == "python" and "LogitAdjusted" in text
    ]
    exec(compile(example, "README.md", "exec"), {})
    assert capsys.readouterr().out.startswith("tensor(")


def test_the_loop_of_parts_trains(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = [
        text for language, text in blocks(ROOT / "docs" / "parts.md") if language == "python"
    ]
    names: dict[str, Any] = {}
    exec(compile(example, "parts.md", "exec"), names)
    assert capsys.readouterr().out.startswith("tensor(")
    assert names["step"] == 8
    assert not names["model"].training
    for module, parts in re.findall(
        r"`(longtail\.[\w.]+)`: ((?:`\w+`(?: \(.*?\))?,? ?)+)",
        (ROOT / "docs" / "parts.md").read_text(),
    ):
        for name in re.findall(r"`(\w+)`", parts):
            assert hasattr(importlib.import_module(module), name), (
                f"parts.md names {name} of {module}"
            )


def test_a_custom_score_ranks_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    pages = blocks(ROOT / "docs" / "metrics.md")
    (code,) = [text for _, text in pages if text.startswith("# our_data.py")]
    (commands,) = [text for _, text in pages if "our_data:" in text and text != code]
    (tmp_path / "our_data.py").write_text(code)
    for command in commands.splitlines():
        small = " --epochs 1 --device cpu --threads 1" if " train " in command else ""
        typed(command + small)
    output = capsys.readouterr().out
    assert "worst 3 over cross_entropy" in output
    row = json.loads((tmp_path / "runs" / "plain-worst" / "row.json").read_text())
    assert row["selection"] == "best ema/val/worst"
    assert {"worst", "nll", "parity/even", "balanced", "few"} <= {*row["test"]["scores"]}


@pytest.mark.parametrize("page", ["metrics.md", "auto.md", "livt.md", "batchformer.md"])
def test_examples_that_need_no_files_run(page: str) -> None:
    run = [
        text
        for language, text in blocks(ROOT / "docs" / page)
        if language == "python" and "runs/" not in text
    ]
    assert run
    for text in run:
        exec(compile(text, page, "exec"), {"__name__": page})


def test_fields_that_may_differ_are_named_in_the_help_and_on_the_page() -> None:
    names = [*MUST_AGREE]
    listed = f"{', '.join(names[:-1])} or {names[-1]}"
    assert listed in ACROSS
    quoted = f"{', '.join(f'`{name}`' for name in names[:-1])} or `{names[-1]}`"
    assert quoted in " ".join((ROOT / "docs" / "report.md").read_text(encoding="utf-8").split())


def test_the_results_page_says_what_the_results_say() -> None:
    assert (ROOT / "docs" / "results.md").read_text(encoding="utf-8") == render.page(), (
        "run python benchmarks/render.py"
    )
    assert published_page.PAGE.read_text(encoding="utf-8") == published_page.page(), (
        "run python benchmarks/render.py"
    )
    for name, drawn in render.charts().items():
        assert (ROOT / "docs" / "images" / f"{name}.svg").read_text(encoding="utf-8") == drawn, (
            "run python benchmarks/render.py"
        )


def test_the_first_figure_shows_the_results() -> None:
    assert (ROOT / "docs" / "images" / "digits-recall.svg").read_text(
        encoding="utf-8"
    ) == picture.figure(), "run benchmarks/picture.py"


def test_the_license_is_complete_and_the_version_is_one() -> None:
    import longtail

    assert len((ROOT / "LICENSE").read_text()) == 11358
    assert f"\nversion: {longtail.__version__}\n" in (ROOT / "CITATION.cff").read_text(
        encoding="utf-8"
    )
    assert f"## [{longtail.__version__}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def result(arm: str, seed: int, top1: float, few: float | None) -> dict[str, Any]:
    groups = {"many": 0.9, "medium": 0.8, "few": few}
    finished = complete_row()
    test = {
        **finished["test"],
        "top1": top1,
        "balanced": 0.5,
        "groups": groups,
        "ece": 0.1,
        "images": 100,
        "group_rule": "ranks: 3/4/3",
    }
    data = {**finished["data"], "train_images": 50, "caveats": []}
    row = complete_row(
        seed=seed,
        test=test,
        data=data,
        minutes=2.0,
        hardware={"threads": 1},
        parameters=7,
        tta="none",
        versions={"torch": "2"},
        recipe="cross_entropy",
        keywords={},
    )
    return {
        "plan": "p",
        "arm": arm,
        "command": f"longtail train {arm} --seed {seed}",
        "commit": "abc",
        "row": row,
        "curve": {},
    }


def test_results_show_each_token_below_their_mean(tmp_path: Path) -> None:
    student = result("student", 0, 0.5, 0.4)
    numbers = student["row"]["test"]
    student["row"]["test"] = {
        **numbers,
        "heads": {
            name: {**numbers, "groups": {"few": few}}
            for name, few in {"cls": 0.1, "dist": 0.7}.items()
        },
    }
    student["row"]["test"]["groups"] = {"few": 0.4}
    for folder, content in (
        ("plans/p", {"question": "Why?", "arms": {"student": {}}, "seeds": [0]}),
        ("results/p/student-seed0", student),
    ):
        path = tmp_path / f"{folder}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content))
    page = render.page(tmp_path)
    assert (
        "| `student` | 1 | 50.0 | 50.0 | 40.0 | 0.100 | 2.0 |\n| `student`, cls alone |  | 50.0 |"
        " 50.0 | 10.0 | 0.100 |  |" in page
    )
    assert "| `student`, dist alone |  | 50.0 | 50.0 | 70.0 | 0.100 |  |" in page


def test_a_page_of_results_has_means_deviations_and_what_is_missing(tmp_path: Path) -> None:
    assert "No plan" in render.page(tmp_path)
    for folder in ("plans", "results/p", "results/speed"):
        (tmp_path / folder).mkdir(parents=True)
    plan = {
        "question": "Why?",
        "expected": "Because.",
        "arms": {"a": {}, "b": {}, "c": {}},
        "seeds": [0, 1],
    }
    (tmp_path / "plans" / "p.json").write_text(json.dumps(plan))
    assert "Not run yet: `a` with seed 0, 1; `b` with seed 0, 1" in render.page(tmp_path)
    for stored in (
        result("a", 0, 0.5, None),
        result("a", 1, 0.52, None),
        result("b", 1, 0.4, 0.25),
    ):
        file = f"{stored['arm']}-seed{stored['row']['seed']}.json"
        (tmp_path / "results" / "p" / file).write_text(json.dumps(stored))
    figures = {"bare loop": {"microseconds_per_step": 123.5}}
    speed = {
        "plan": "speed",
        "question": "How fast?",
        "command": "python x.py",
        "figures": figures,
        "machine": {"cores": 2},
    }
    (tmp_path / "results" / "speed" / "loop.json").write_text(json.dumps(speed))
    page = render.page(tmp_path)
    assert (
        "| `a` | 2 | 51.0 ± 1.4 | 50.0 ± 0.0 | 90.0 ± 0.0 | 80.0 ± 0.0 | - | 0.100 | 2.0 |" in page
    )
    assert "| `b` | 1 | 40.0 | 50.0 | 90.0 | 80.0 | 25.0 | 0.100 | 2.0 |" in page
    assert "Not run yet: `b` with seed 0; `c` with seed 0, 1." in page
    assert "| bare loop, microseconds per step | 123.5 |" in page


@pytest.mark.parametrize("page", ["README.md", "docs/auto.md"])
def test_what_auto_reached_on_plankton_is_what_the_results_say(page: str) -> None:
    means = {}
    overall = {}
    for arm in ("auto", "cross-entropy"):
        results = [
            json.loads(path.read_text(encoding="utf-8"))
            for path in ROOT.glob(f"benchmarks/results/plankton_auto/{arm}-seed*.json")
        ]
        assert len(results) == 3
        means[arm] = sum(result["row"]["test"]["balanced"] for result in results) / 3
        overall[arm] = f"{100 * sum(result['row']['test']['top1'] for result in results) / 3:.1f}%"
    text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    stated = re.search(
        r"reached (\S+)% balanced accuracy\. Cross entropy [^.]*? reached (\S+)%\.", text
    )
    assert stated is not None
    assert stated.groups() == (f"{100 * means['auto']:.1f}", f"{100 * means['cross-entropy']:.1f}")
    if page == "README.md":
        assert (
            f"all images the accuracy was {overall['auto']} against {overall['cross-entropy']}"
            in text
        )
    rows = [
        json.loads(path.read_text(encoding="utf-8"))["row"]
        for path in ROOT.glob("benchmarks/results/plankton_auto/auto-seed*.json")
    ]
    minutes = sum(row["minutes"] for row in rows) / 3
    assert f"on a busy machine training took {minutes:.0f} minutes" in text.lower()


def test_what_adjusting_did_on_plankton_is_what_the_results_say() -> None:
    rows: list[Any] = [
        row_of(json.loads(path.read_text(encoding="utf-8"))["row"], source=path)
        for path in ROOT.glob("benchmarks/results/plankton_auto/auto-seed*.json")
    ]
    before, after = ([row["adjustment"]["test"] for row in rows], [row["test"] for row in rows])
    balanced, before_top1, top1 = (
        100 * sum(scores[name] for scores in numbers) / 3
        for numbers, name in ((before, "balanced"), (before, "top1"), (after, "top1"))
    )
    page = " ".join((ROOT / "docs" / "auto.md").read_text(encoding="utf-8").split())
    assert (
        f"accuracy was {balanced:.1f}% (and overall accuracy {before_top1:.1f} instead of"
        f" {top1:.1f}%)" in page
    )
    (shifted,) = [row for row in rows if row["adjustment"]["tau"] > 0]
    for split, paid in (("val", True), ("test", False)):
        assert (shifted[split]["balanced"] > shifted["adjustment"][split]["balanced"]) is paid
