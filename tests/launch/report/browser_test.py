"""The page of a report in a real browser: its parts in order, and nothing that overflows or is too small to read."""

import browser
import pytest
from processes import ran

TRAIN = ["--device", "cpu", "--fanout", "4,3", "--batch-size", 100, "--hidden", 8, "--quiet"]
ORDER = ["What ran", "Result", "Learning curves", "Time", "Bytes", "Options"]
COMPARED = ["What ran", "Results", "Learning curves", "Time and bytes"]
# What sticks out of the page, unless a part of its own scrolls it.
WIDER = """[...document.querySelectorAll('body *')].filter(each => !each.closest('.scroll'))
    .filter(each => each.getBoundingClientRect().right > document.documentElement.clientWidth)
    .map(each => each.outerHTML.slice(0, 80))"""
SIZES = "[...document.querySelectorAll('p, td, figcaption')].map(each => parseFloat(getComputedStyle(each).fontSize))"
TITLES = "[...document.querySelectorAll('h2')].map(each => each.textContent)"
TOPS = "[...document.querySelectorAll('h2, .score, img')].map(each => each.getBoundingClientRect().top)"
IMAGES = "[...document.images].map(each => [each.naturalWidth, each.getBoundingClientRect().width])"
COLOURS = "[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"


@pytest.fixture(scope="module")
def pages(cora, tmp_path_factory, shm):
    """Pages of a run with a cache and long names, and of its comparison with one of two ranks."""
    pytest.importorskip("matplotlib")
    if browser.find() is None:
        pytest.skip("no Chromium: apt-get install chromium")
    folder = tmp_path_factory.mktemp("a-folder-with-a-name-that-is-long-enough-to-need-a-line-of-its-own")
    runs = [folder / name for name in ("cached-rows-and-lists-of-a-tenth", "two-ranks-with-a-name-that-is-long-too")]
    for run, options in zip(runs, (["--cache-ratio", 0.1, "--epochs", 4], ["--ranks", 2, "--epochs", 2]), strict=True):
        ran("train", cora, *TRAIN, *options, "--out", run)
    ran("report", runs[0])
    ran("report", *runs, "--out", folder / "both")
    return runs[0] / "report.html", folder / "both/report.html"


@pytest.fixture(scope="module")
def shown(pages, tmp_path_factory):
    with browser.Browser(browser.find(), tmp_path_factory.mktemp("browser")) as opened:
        yield opened


@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("number", [0, 1], ids=["one", "compared"])
def test_a_page_fits_and_has_its_parts_in_order(pages, shown, number, width):
    shown.show(pages[number], width)
    assert shown.value("document.documentElement.scrollWidth") <= width and shown.value(WIDER) == []
    assert shown.value(TITLES) == (ORDER, COMPARED)[number]
    tops = shown.value(TOPS)
    assert width < 1280 or tops == sorted(tops), "parts stand below each other"
    assert min(shown.value(SIZES)) >= 13
    images = shown.value(IMAGES)
    assert len(images) >= 3
    for natural, on_screen in images:  # text of 10 points at 150 dots an inch
        assert on_screen > 300 and 10 * 150 / 72 * on_screen / natural >= 9, "labels that nobody can read"


def test_a_page_has_a_light_and_a_dark_side(pages, shown):
    found = []
    for is_dark in (False, True):
        shown.show(pages[0], 1280, is_dark)
        found.append(shown.value(COLOURS))
    assert found[0] == ["rgb(31, 35, 40)", "rgb(255, 255, 255)"] and found[1] == [
        "rgb(230, 237, 243)",
        "rgb(13, 17, 23)",
    ]
