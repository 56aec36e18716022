"""The shell of every page: escaped, closed to the network, readable in light and dark."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from longtail.report import pages


def style() -> str:
    return (pages.TEMPLATES / "svg.css").read_text(encoding="utf-8")


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
    linear = [own / 12.92 if own <= 0.04045 else ((own + 0.055) / 1.055) ** 2.4 for own in parts]
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


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def test_a_page_loads_nothing_and_says_so_to_the_browser() -> None:
    text = pages.render("page.html")
    page = Page(text)
    policy = next(
        own["content"]
        for tag, own in page.tags
        if tag == "meta" and own.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy is not None
    assert policy.startswith("default-src 'none'; img-src data:;")
    assert "unsafe-inline" not in policy.partition("script-src")[2]
    assert not [
        tag
        for tag, own in page.tags
        if str(own.get("src", own.get("href", "data:"))).split(":")[0] != "data"
    ]
    assert "url(" not in text
    assert "@import" not in text
    assert "http" not in re.sub(r'http-equiv="', "", text)
    assert (
        "meta",
        {"name": "viewport", "content": "width=device-width, initial-scale=1"},
    ) in page.tags


def test_what_a_template_is_given_is_escaped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "TEMPLATES", tmp_path)
    monkeypatch.setattr(pages, "_templates", pages._templates.__wrapped__)
    for name in ("svg.css", "page.css", "page.js"):
        (tmp_path / name).write_text("")
    (tmp_path / "t.html").write_text("<p title='{{ words }}'>{{ words }}</p>")
    assert (
        pages.render("t.html", words="<b>'x'")
        == "<p title='&lt;b&gt;&#39;x&#39;'>&lt;b&gt;&#39;x&#39;</p>"
    )


def test_a_table_has_a_caption_headings_and_values_to_sort_by() -> None:
    template = '{% import "parts.html" as parts %}{{ parts.table("Cap", ["a", "b"], rows, [1], sortable=true, sorted=1, best=0) }}'
    text = (
        pages._templates()
        .from_string(template)
        .render(rows=[["<x>", ("1.0 ± 2", 1.0)], ["y", ("-", None)]])
    )
    for words in (
        '<table class="sortable">',
        "<caption><span>Cap</span></caption>",
        '<th scope="col" class="number" aria-sort="descending">b</th>',
        '<tr class="best"><th scope="row">&lt;x&gt;</th><td class="number" data-value="1.0">1.0 ± 2</td>',
        '<td class="number" data-value="">-</td>',
        'tabindex="0"',
    ):
        assert words in text, words
