"""The page as a person uses it, in a real browser."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import odd_images
import pytest
import uvicorn
from finished import CLASSES, calibrated, classifier, finished
from playwright.sync_api import Browser, Page, expect

from longtail.runs import load
from longtail.serve.app import SIDE, create

pytestmark = pytest.mark.browser
EVIL = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    run = calibrated(
        finished(tmp_path_factory.mktemp("run"), classifier(), classes=[EVIL, *CLASSES[1:]]),
        [1.0] * 10,
    )
    server = uvicorn.Server(
        uvicorn.Config(
            create(load(run, device="cpu"), megabytes=0.1),
            port=0,
            log_level="warning",
            lifespan="off",
        )
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the server did not start"
        thread.join(0.05)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join()


@pytest.fixture(params=[(1200, 800), (390, 844)], ids=["desk", "phone"])
def page(browser: Browser, address: str, request: pytest.FixtureRequest) -> Iterator[Page]:
    width, height = request.param
    opened = browser.new_page(viewport={"width": width, "height": height})
    problems: list[str] = []
    opened.on(
        "console",
        lambda message: (
            problems.append(message.text) if message.type in ("error", "warning") else None
        ),
    )
    opened.on("pageerror", lambda error: problems.append(str(error)))
    opened.on(
        "request",
        lambda request: (
            None
            if request.url.startswith((address, f"blob:{address}", "data:"))
            else problems.append(request.url)
        ),
    )
    opened.goto(address)
    yield opened
    # A refused upload is itself an error on the console of Chromium.
    assert [
        problem
        for problem in problems
        if "Failed to load resource: the server responded with a status of 415" not in problem
    ] == []
    opened.close()


def upload(page: Page, name: str, content: bytes) -> None:
    page.set_input_files("#image", {"name": name, "mimeType": "image/png", "buffer": content})


def test_an_upload_gets_bars_a_set_and_a_map(page: Page) -> None:
    upload(page, "mine.png", odd_images.content("grey"))
    page.wait_for_selector("#result:not([hidden])")
    assert page.locator("#bars li").count() == 5
    widths = page.locator("#bars .bar").evaluate_all(
        "bars => bars.map((bar) => bar.getBoundingClientRect().width)"
    )
    assert widths == sorted(widths, reverse=True)
    assert widths[0] > 0
    assert (
        page.locator("#answer")
        .inner_text()
        .startswith(page.locator("#bars .name").first.inner_text())
    )
    assert "Better ask a person" in page.locator("#abstain").inner_text()
    assert EVIL in page.locator("#set").inner_text()  # as text
    assert page.locator("img[src=x]").count() == 0
    expect(page.locator("#picture")).to_have_js_property("naturalWidth", 12)
    expect(page.locator("#map")).to_have_js_property("naturalWidth", SIDE)
    assert "Grad-CAM" in page.locator("#kind").inner_text()
    assert page.locator("#map").get_attribute("alt")
    assert page.evaluate("document.activeElement.id") == "answer"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_what_is_no_image_gets_a_message_and_the_next_one_works(page: Page) -> None:
    upload(page, "notes.txt", odd_images.content("text"))
    expect(page.locator("#problem")).to_contain_text("expected an image")
    assert page.locator("#problem").get_attribute("role") == "alert"
    assert page.locator("#result").is_hidden()
    upload(page, "large.png", bytes(200_000))
    expect(page.locator("#problem")).to_contain_text("at most 0.1 MB")
    upload(page, "mine.png", odd_images.content("grey"))
    page.wait_for_selector("#result:not([hidden])")
    assert page.locator("#problem").inner_text() == ""
    # Which the server can read, and the browser cannot show
    upload(page, "mine.tiff", odd_images.content("wide"))
    expect(page.locator("#picture")).to_be_hidden()
    expect(page.locator("#map")).to_be_visible()


@pytest.mark.parametrize("way", ["paste", "drop"])
def test_images_can_be_pasted_and_dropped(page: Page, way: str) -> None:
    page.evaluate(
        """async ([way, content]) => {
            const carried = new DataTransfer();
            carried.items.add(new File([new Uint8Array(content)], "image.png", { type: "image/png" }));
            const event = way === "paste" ? new ClipboardEvent("paste", { clipboardData: carried, bubbles: true })
                                         : new DragEvent("drop", { dataTransfer: carried, bubbles: true, cancelable: true });
            document.body.dispatchEvent(event);
        }""",
        [way, list(odd_images.content("grey"))],
    )
    page.wait_for_selector("#result:not([hidden])")


def test_the_keyboard_reaches_the_upload_and_everything_has_a_name(page: Page) -> None:
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "image"
    assert page.evaluate("document.activeElement.labels[0].innerText.includes('Choose an image')")
    outline: Any = page.evaluate("getComputedStyle(document.getElementById('drop')).outlineStyle")
    assert outline == "solid"
    assert page.evaluate("document.documentElement.lang") == "en"
    assert page.locator("#status").get_attribute("aria-live") == "polite"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_ground(browser: Browser, address: str, scheme: Any) -> None:
    opened = browser.new_page(color_scheme=scheme)
    opened.goto(address)
    upload(opened, "mine.png", odd_images.content("grey"))
    opened.wait_for_selector("#result:not([hidden])")
    contrasts = opened.evaluate("""() => {
            const light = (colour) => {
                const [red, green, blue] = colour.match(/[0-9.]+/g).slice(0, 3).map((value) => value / 255)
                    .map((value) => value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
                return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
            };
            const ground = (element) => {
                const colour = getComputedStyle(element).backgroundColor;
                return colour === "rgba(0, 0, 0, 0)" && element.parentElement ? ground(element.parentElement) : colour;
            };
            return [...document.querySelectorAll("h1, h2, h3, p, strong, .drop span, .name, .value, figcaption, code")]
                .filter((element) => element.innerText).map((element) => {
                    const [high, low] = [light(getComputedStyle(element).color), light(ground(element))].sort((a, b) => b - a);
                    return [element.innerText, (high + 0.05) / (low + 0.05)];
                });
        }""")
    assert len(contrasts) > 10
    assert [contrast for contrast in contrasts if contrast[1] < 4.5] == []
    opened.close()
