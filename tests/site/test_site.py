"""The built site in a real browser: nothing from elsewhere, search offline, phone and desktop, axe-core."""

import html
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deepsets.serve.page import chromium, needs_browser

pytest.importorskip("mkdocs", reason="no mkdocs here (make docs installs it)")
pytestmark = [needs_browser(), pytest.mark.slow]
ROOT = Path(__file__).parents[2]
AXE = ROOT / "build/axe/node_modules/axe-core/axe.min.js"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    found = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0 and not found.stderr, found.stderr
    return folder


@pytest.fixture(scope="module")
def browser():
    with chromium() as found:
        yield found


def visits(browser, site, **settings):
    """Each page of the site, loaded, with the requests and the complaints of the browser so far."""
    context = browser.new_context(**settings)
    page = context.new_page()
    requests, complaints = [], []
    page.on("request", lambda request: requests.append(request.url))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    for path in sorted(set(site.rglob("*.html")) - {site / "404.html"}):  # that one is made for a server
        page.goto(path.as_uri())
        yield page, path.relative_to(site), requests, complaints
    context.close()


def test_nothing_is_loaded_from_elsewhere_and_nothing_is_wider_than_a_phone(browser, site):
    phone = {"viewport": {"width": 390, "height": 844}}
    count = 0
    for page, path, requests, complaints in visits(browser, site, **phone):
        assert [url for url in requests if not url.startswith(("file://", "data:", "blob:"))] == [], path
        assert complaints == [], path
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
        assert page.evaluate("[...document.images].filter(i => i.complete && !i.naturalWidth).length") == 0, path
        count += 1
    assert count > 30


def test_the_reference_shows_each_default_and_no_markup(site):
    pages = {path.name: path.read_text() for path in (site / "api").glob("*.html")}
    assert [name for name, text in pages.items() if re.search(r":(class|func|meth|mod|math):", text)] == []
    text = html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", pages["estimators.html"])))
    assert "width (int, default: 64 )" in text and "depth (int, default: 2 )" in text  # they share an entry


def test_the_search_works_without_a_server(browser, site):
    wanted = {"multiple instance learning": "faq.html", "ISAB": "glossary.html", "from_anndata": "api/sets.html"}
    for words, target in wanted.items():
        page = browser.new_page()
        page.goto(f"{(site / 'index.html').as_uri()}?q={words}")
        page.wait_for_selector(".md-search-result__link", state="attached")
        links = page.eval_on_selector_all(".md-search-result__link", "links => links.map(link => link.href)")
        assert any(target in link for link in links), (words, links)
        page.close()


@pytest.mark.skipif(not AXE.is_file(), reason="axe-core is not there (npm install --prefix build/axe axe-core)")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_fault(browser, site, scheme):
    script, faults = AXE.read_text(), []
    for page, path, _, _ in visits(browser, site, color_scheme=scheme, reduced_motion="reduce"):
        page.evaluate(script)
        answer = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        faults += [
            (str(path), found["id"], len(found["nodes"]), found["nodes"][0]["html"][:150])
            for found in answer["violations"]
            if found["impact"] in ("serious", "critical")
        ]
    assert faults == []
