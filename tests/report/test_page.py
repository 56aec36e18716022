"""The HTML report of one run or several: its content, its errors and its look in a browser."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from longtail.records.groups import Groups
from longtail.records.predictions import read_predictions
from longtail.report import page
from longtail.report.page import build, write
from longtail.scoring.long_tail import LongTailScorer
from longtail.scoring.scorer import headline_of, summarise_splits

from .conftest import write_examples

if TYPE_CHECKING:
    from playwright.sync_api import Browser
    from playwright.sync_api import Page as Shown

Finished = Callable[..., Path]
GOOD = (0.9, 0.8, 0.7)
EVIL = "<script>document.title='taken'</script>"


class Page(HTMLParser):
    VOID = ("meta", "link", "img", "br", "hr")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes something else"


def pair(finished: Finished) -> list[Path]:
    folders = [finished("plain"), finished("even", recipe="balanced_softmax", right=GOOD, draw=1)]
    for folder in folders:
        write_examples(folder)
    return folders


def test_one_run_is_a_page_with_every_section(finished: Finished) -> None:
    folder = finished("a")
    write_examples(folder)
    text, warnings = build([folder])
    assert warnings == []
    page = Page(text)
    assert page.open == []
    for words in (
        "cross_entropy on toy-lt",
        "Classes, from frequent to rare",
        "The worst classes of the tail",
        "Training",
        "Calibration",
        "Confusion between groups",
        "How to reproduce",
        "0123456789abcdef",
    ):
        assert words in text, words


def test_several_runs_are_compared_and_have_their_sections(finished: Finished) -> None:
    text, warnings = build(pair(finished))
    assert warnings == []
    assert "2 runs on toy-lt" in text
    assert "balanced_softmax has the highest balanced accuracy" in text
    assert "A\u00a0 balanced_softmax" in text
    assert text.count("<details>") >= 2
    assert "Equal in all runs: split toy-lt" in text


def test_the_sentence_turns_the_difference_round_when_the_reference_is_best(
    finished: Finished,
) -> None:
    plain, even = pair(finished)
    forth, back = build([plain, even])[0], build([even, plain])[0]
    sentence = re.compile(r'<p class="words">(balanced_softmax has the highest.*?)</p>')
    first, second = (match[1] for text in (forth, back) if (match := sentence.search(text)))
    assert first == second
    assert "points over cross_entropy" in first


def test_seeds_share_a_letter(finished: Finished) -> None:
    runs = [finished(f"s{seed}", seed=seed, draw=seed) for seed in range(3)]
    text = build(runs)[0]
    assert "cross_entropy has a balanced accuracy of" in text
    assert len(re.findall(r"<h3>A  ", text)) == 3


def test_runs_that_cannot_be_ranked_keep_their_sections(finished: Finished) -> None:
    runs = [finished("a"), finished("b", tta="flip", recipe="livt")]
    text, warnings = build(runs)
    assert "These runs are not ranked" in text
    assert "show it as a column with --across tta" in text
    assert "--across tta" in warnings[-1]
    assert all(f"{recipe} on toy-lt" in text for recipe in ("cross_entropy", "livt"))
    assert "These runs are not ranked" not in build(runs, across=["tta"])[0]
    other = finished("c", data={"name": "moths", "hash": "f" * 16})
    text, warnings = build([runs[0], other])
    assert "2 runs on toy-lt and moths" in text
    assert "--across split" in warnings[-1]
    assert "not ranked" in build([runs[0], finished("d", test=None, predictions=False)])[0]


def test_what_is_not_a_finished_run_is_refused_all_at_once(
    finished: Finished, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "unfinished").mkdir()
    (tmp_path / "unfinished" / "recipe.json").write_text("{}")
    newer = finished("newer", format=99)
    with pytest.raises(ValueError, match="empty folder") as caught:
        build(
            [
                finished("a"),
                tmp_path / "empty",
                tmp_path / "unfinished",
                newer,
                tmp_path / "nowhere",
            ]
        )
    for words in ("unfinished one", "a newer longtail wrote it", "got nothing at"):
        assert words in str(caught.value)
    with pytest.raises(ValueError, match="at least one run"):
        build([])


def test_names_cannot_break_out_of_the_page(finished: Finished) -> None:
    folder = finished(
        "a",
        classes=("cat", f'"><img src=x onerror="x">{EVIL}', EVIL),
        recipe=f"r{EVIL}",
        data={"caveats": [EVIL]},
    )
    write_examples(folder)
    text = build([folder])[0]
    page = Page(text)
    assert [tag for tag, _ in page.tags].count("script") == 1, "that of the page template"
    assert not [
        attributes
        for _, attributes in page.tags
        if any(name.startswith("on") for name in attributes)
    ]
    assert not [
        attributes
        for tag, attributes in page.tags
        if tag == "img" and not str(attributes["src"]).startswith("data:")
    ]


def test_a_report_is_accessible(finished: Finished) -> None:
    for text in (build(pair(finished))[0], build([finished("c")])[0]):
        page = Page(text)
        levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch(r"h[1-6]", tag)]
        assert levels[0] == 1
        assert levels.count(1) == 1
        assert all(after <= before + 1 for before, after in itertools.pairwise(levels)), (
            "no level is skipped"
        )
        assert all(attributes.get("alt") for tag, attributes in page.tags if tag == "img")
        assert all(
            attributes.get("role") == "img" and attributes.get("aria-label")
            for tag, attributes in page.tags
            if tag == "svg" and "aria-hidden" not in attributes
        )
        assert (
            [tag for tag, _ in page.tags].count("table")
            == [tag for tag, _ in page.tags].count("caption")
            > 0
        )
        assert all(
            attributes.get("scope") in ("col", "row")
            for tag, attributes in page.tags
            if tag == "th"
        )
        boxes = [
            attributes
            for _, attributes in page.tags
            if (attributes.get("class") or "").startswith("box")
        ]
        assert all(
            attributes.get("tabindex") == "0" and attributes.get("aria-label")
            for attributes in boxes
        ), "what scrolls can be reached by keyboard"


def test_a_report_is_built_from_files_without_torch(finished: Finished, tmp_path: Path) -> None:
    code = """
import sys
from pathlib import Path
from longtail.report.page import write
write([Path(folder) for folder in sys.argv[2:]], Path(sys.argv[1]))
assert not {"torch", "torchvision", "timm", "matplotlib"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code, tmp_path / "r.html", *pair(finished)], check=True)
    assert (tmp_path / "r.html").stat().st_size > 10_000


def test_the_same_runs_give_the_same_page_and_nothing_is_left_lying(
    finished: Finished, tmp_path: Path
) -> None:
    runs = pair(finished)
    assert write(runs, tmp_path / "deep" / "r.html") == []
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["r.html"]
    assert (tmp_path / "deep" / "r.html").read_text(encoding="utf-8") == build([*runs, runs[0]])[
        0
    ], "a run that is named twice is one run"


# ------------------------------------------------------------------------------------- in a browser


@pytest.fixture
def shown(browser: Browser, finished: Finished, tmp_path: Path) -> Iterator[Shown]:
    """A page of two runs on a phone; complaints of the browser and requests to anywhere fail the
    test.
    """
    folders = [
        finished("plain", classes=("cat", "dog", EVIL)),
        finished(
            "even", recipe="balanced_softmax", right=GOOD, draw=1, classes=("cat", "dog", EVIL)
        ),
    ]
    for folder in folders:
        write_examples(folder)
    write(folders, tmp_path / "r.html")
    context = browser.new_context(viewport={"width": 390, "height": 800}, color_scheme="dark")
    page, trouble = context.new_page(), []
    page.on("console", lambda message: trouble.append(message.text))
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on(
        "request",
        lambda request: (
            None if request.url.startswith(("data:", "file:")) else trouble.append(request.url)
        ),
    )
    page.goto((tmp_path / "r.html").as_uri())
    yield page
    context.close()
    assert trouble == []


def methods(page: Shown) -> list[str]:
    return [
        text.split()[-1]
        for text in page.locator("table").first.locator("tbody th").all_inner_texts()
    ]


@pytest.mark.browser
def test_the_page_fits_a_phone(shown: Shown) -> None:
    assert shown.title() == "2 runs on toy-lt · longtail report", (
        "no name of a class took the page over"
    )
    shown.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    wide, room = shown.evaluate(
        "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    )
    assert wide == room == 390
    assert shown.locator("svg[role=img]").count() >= 20
    boxes = [image.bounding_box() for image in shown.locator("svg[role=img]").all()]
    assert all(box is not None and box["width"] > 100 and box["height"] > 40 for box in boxes)
    assert shown.evaluate(
        "[...document.images].every(image => image.complete && image.naturalWidth > 0)"
    )
    assert shown.locator("img").count() >= 8


@pytest.mark.browser
def test_a_table_sorts_by_click_and_by_keyboard(shown: Shown) -> None:
    assert methods(shown) == ["balanced_softmax", "cross_entropy"]
    heading = shown.get_by_role("columnheader", name="balanced", exact=True)
    assert heading.get_attribute("aria-sort") == "descending"
    heading.get_by_role("button").click()
    assert heading.get_attribute("aria-sort") == "ascending"
    assert methods(shown) == ["cross_entropy", "balanced_softmax"]
    shown.get_by_role("columnheader", name="few", exact=True).get_by_role("button").focus()
    shown.keyboard.press("Enter")
    assert heading.get_attribute("aria-sort") is None
    assert methods(shown) == ["balanced_softmax", "cross_entropy"]
    shown.keyboard.press("Space")
    assert methods(shown) == ["cross_entropy", "balanced_softmax"]
    difference = shown.get_by_role("columnheader", name=re.compile("balanced over")).get_by_role(
        "button"
    )
    for _ in range(2):
        difference.click()
        assert methods(shown)[-1] == "cross_entropy", "what has no number stays at the end"


@pytest.mark.browser
def test_sections_open_by_keyboard_and_for_paper(shown: Shown) -> None:
    first = shown.locator("details > summary", has_text="balanced").first
    first.focus()
    shown.keyboard.press("Enter")
    assert first.locator("..").get_attribute("open") is not None
    shown.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert shown.locator("details:not([open])").count() == 0


# ------------------------------------------------------------------------------------- the shell


def style() -> str:
    return (page.TEMPLATES / "svg.css").read_text(encoding="utf-8")


def colours(block: str) -> dict[str, str]:
    return dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", block))


LIGHT, DARK = (
    colours(block)
    for block in (
        re.findall(r"^:root \{(.*?)\}", style(), re.MULTILINE | re.DOTALL)[0],
        re.findall(r"scheme: dark\) \{\s+:root \{(.*?)\}", style(), re.DOTALL)[0],
    )
)


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first: str, second: str) -> float:
    """WCAG 2.2."""
    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", [LIGHT, DARK], ids=["light", "dark"])
def test_text_has_the_contrast_that_people_need(scheme: dict[str, str]) -> None:
    assert contrast("#ffffff", "#000000") == pytest.approx(21)
    assert set(LIGHT) == set(DARK)
    text = ["ink", "quiet", "accent", "warn", "bad", *(f"s{number}" for number in range(1, 10))]
    assert all(contrast(scheme[name], scheme["paper"]) >= 4.5 for name in text), "AA for text: 4.5"
    assert all(contrast(scheme[name], scheme["wash"]) >= 4.5 for name in ("ink", "quiet"))
    assert contrast(scheme["edge"], scheme["paper"]) >= 3, "AA for graphics: 3"


def test_a_page_loads_nothing_and_says_so_to_the_browser() -> None:
    text = page.render("page.html")
    parsed = Page(text)
    policy = next(
        attributes["content"]
        for tag, attributes in parsed.tags
        if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy is not None
    assert policy.startswith("default-src 'none'; img-src data:;")
    assert "unsafe-inline" not in policy.partition("script-src")[2]
    assert not [
        tag
        for tag, attributes in parsed.tags
        if str(attributes.get("src", attributes.get("href", "data:"))).split(":")[0] != "data"
    ]
    assert "url(" not in text
    assert "@import" not in text
    assert "http" not in re.sub(r'http-equiv="', "", text)
    assert (
        "meta",
        {"name": "viewport", "content": "width=device-width, initial-scale=1"},
    ) in parsed.tags


def test_what_a_template_is_given_is_escaped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "TEMPLATES", tmp_path)
    monkeypatch.setattr(page, "_templates", page._templates.__wrapped__)
    for name in ("svg.css", "page.css", "page.js"):
        (tmp_path / name).write_text("")
    (tmp_path / "t.html").write_text("<p title='{{ words }}'>{{ words }}</p>")
    assert (
        page.render("t.html", words="<b>'x'")
        == "<p title='&lt;b&gt;&#39;x&#39;'>&lt;b&gt;&#39;x&#39;</p>"
    )


def test_a_table_has_a_caption_headings_and_values_to_sort_by() -> None:
    template = (
        '{% import "parts.html" as parts %}{{ parts.table("Cap", ["a", "b"], rows, [1],'
        " sortable=true, sorted=1, best=0) }}"
    )
    text = (
        page._templates()
        .from_string(template)
        .render(rows=[["<x>", ("1.0 ± 2", 1.0)], ["y", ("-", None)]])
    )
    for words in (
        '<table class="sortable">',
        "<caption><span>Cap</span></caption>",
        '<th scope="col" class="number" aria-sort="descending">b</th>',
        (
            '<tr class="best"><th scope="row">&lt;x&gt;</th><td class="number" data-value="1.0">1.0'
            " ± 2</td>"
        ),
        '<td class="number" data-value="">-</td>',
        'tabindex="0"',
    ):
        assert words in text, words


def test_groups_of_other_names_and_classes_without_training_images(
    finished: Finished, tmp_path: Path
) -> None:
    groups = Groups("by training images", {"seen": (0, 1), "unseen": (2,)})
    folders = [finished("a"), finished("b", recipe="balanced_softmax", draw=1)]
    for folder in folders:
        predictions, _ = read_predictions(folder / "predictions" / "test.npz")
        counts, scorer = np.array([90, 18, 0]), LongTailScorer(groups)
        summaries = summarise_splits({"test": predictions}, scorer, groups=groups, counts=counts)
        row = json.loads((folder / "row.json").read_text())
        row["data"]["counts_after"] = counts.tolist()
        row |= {"test": summaries["test"], "headline": headline_of(scorer), "labels": scorer.labels}
        (folder / "row.json").write_text(json.dumps(row))
        record = json.loads((folder / "recipe.json").read_text())
        record["data"]["groups"] = groups.to_json()
        (folder / "recipe.json").write_text(json.dumps(record))
    write(folders, tmp_path / "page.html")
    shown = (tmp_path / "page.html").read_text()
    for words in ("seen (2 classes)", "unseen (1 class)", "unseen, % of test images"):
        assert words in shown
    assert "Rings are classes of group many" not in shown
    assert "Rings are classes of group many" in build([finished("c")])[0]
