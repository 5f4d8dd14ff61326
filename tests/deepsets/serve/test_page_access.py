"""The explorer page for all: names, roles, contrast in both schemes, focus that is seen, nothing wider than a phone."""

import re
from pathlib import Path

import pytest

from tests.deepsets.serve.page import needs_browser, page_folder, running, visiting

pytestmark = [needs_browser(), pytest.mark.slow]
CHECK = Path(__file__).with_suffix(".js").read_text()
AXE = Path(__file__).parents[3] / "build/axe/node_modules/axe-core/axe.min.js"
VIEWS = {
    "empty": "",
    "query": "#q=lion,tiger,puma,oak",
    "unknown": "#q=lion,zebra",
    "cloud": "#model=shapes&example=1",
    "numbers": "#model=boxes",
}


def settled(page, view):
    """The view as it is when all answers are there."""
    page.wait_for_selector("main h1:visible")
    if view in ("query", "unknown"):
        page.wait_for_selector(".column ol button")
    if view == "unknown":
        page.wait_for_selector(".chip.unknown")
    if view == "query":
        page.fill("#entry", "l")
        page.wait_for_selector("#options:not([hidden])")
        page.keyboard.press("ArrowDown")
    if view == "cloud":
        page.wait_for_selector(".plot")
        page.click("summary")
    return page


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("view", VIEWS)
def test_every_view_is_accessible(visit, view, scheme):
    page = settled(visit(VIEWS[view], color_scheme=scheme, reduced_motion="reduce"), view)
    found = page.evaluate(CHECK)
    assert found["faults"] == []
    assert found["least"] >= 3
    assert found["controls"] >= 5


def test_the_check_finds_what_is_wrong(visit):
    page = visit()
    page.wait_for_selector("#starts button")
    page.evaluate("""() => {
        document.documentElement.lang = "";
        document.querySelector("#undo").disabled = false;
        document.querySelector("#undo").textContent = "";
        document.querySelector(".lead").style.color = "#bbb";
        document.querySelector("#starts h2").outerHTML = "<h4 id='starts-title'>Try</h4>";
        document.querySelector("#chips").setAttribute("role", "lisst");
        document.querySelector("#entry").setAttribute("aria-controls", "nowhere");
    }""")
    told = " ".join(page.evaluate(CHECK)["faults"])
    for fault in ("no language", "without a name", "a contrast of", "left out", "not expected", "points to nothing"):
        assert fault in told


@pytest.mark.skipif(not AXE.is_file(), reason="axe-core is not there (npm install --prefix build/axe axe-core)")
@pytest.mark.parametrize("view", ["query", "cloud"])
def test_axe_finds_nothing_either(visit, view):
    page = settled(visit(VIEWS[view], reduced_motion="reduce"), view)
    page.evaluate(AXE.read_text())
    answer = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    assert [(fault["id"], [node["html"] for node in fault["nodes"]]) for fault in answer["violations"]] == []


def test_the_blend_and_its_methods_are_accessible(site):
    from deepsets.serve import words

    with running(words()[:2]) as address, visiting(site[0], address) as visit:
        for options in ({}, {"color_scheme": "dark"}, {"viewport": {"width": 360, "height": 640}}):
            page = visit("#q=lion,tiger,violin&methods=1", reduced_motion="reduce", **options)
            page.wait_for_selector("[data-model=bayesian-sets]:not([aria-busy]) ol button")
            page.wait_for_selector(".why")
            assert page.evaluate(CHECK)["faults"] == []
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            if AXE.is_file():
                page.evaluate(AXE.read_text())
                assert page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"] == []


@pytest.mark.parametrize("view", VIEWS)
def test_a_phone_need_not_scroll_sideways(visit, view):
    page = settled(visit(VIEWS[view], viewport={"width": 360, "height": 640}, has_touch=True, is_mobile=True), view)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    over = """() => [...document.querySelectorAll("main *:not(.hidden, .scroll *, .choose *)")].filter((node) =>
        node.checkVisibility() && node.getBoundingClientRect().right > 360.5
    ).map((node) => node.outerHTML)"""
    assert page.evaluate(over) == []


@pytest.mark.parametrize("view", ["query", "cloud"])
def test_focus_is_always_seen(visit, view):
    page = visit(VIEWS[view])
    page.wait_for_selector(".column ol button, .plot")
    ring = """() => {
        const ringed = (node) => {
            const {outlineStyle, outlineWidth} = getComputedStyle(node);
            return outlineStyle !== "none" && parseFloat(outlineWidth) >= 2;
        };
        const [node, around] = [document.activeElement, document.activeElement.parentElement];
        if (node === document.body) return null;
        const field = node.id === "entry" && getComputedStyle(around).boxShadow.split("rgb").length > 3;
        return {node: node.outerHTML.slice(0, 80), seen: ringed(node) || ringed(around) || field};
    }"""
    walked = []
    for _ in range(30):
        page.keyboard.press("Tab")
        at = page.evaluate(ring)
        if at is None:
            break
        walked.append(at)
    assert len(walked) > 8
    assert [at["node"] for at in walked if not at["seen"]] == []


def test_the_page_is_light_and_takes_nothing_from_elsewhere():
    files = [path for path in page_folder().rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 150_000
    for path in files:
        text = path.read_text("utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "http:" not in text and "https:" not in text and "innerHTML" not in text, path
    html = (page_folder() / "index.html").read_text("utf-8")
    modules = {path.name for path in files if path.suffix == ".js"} - {"main.js"}
    assert modules == set(re.findall(r'modulepreload" href="page/(\w+\.js)"', html))  # one way to the server, not three
    assert " style=" not in html and " onclick=" not in html and "<style" not in html and "<script>" not in html
