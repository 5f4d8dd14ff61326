"""The explorer page in a real browser, against the real server: what a visitor does, and what is seen then."""

import os
import re
import time
from pathlib import Path

import numpy as np
import pytest

from tests.deepsets.serve.page import NASTY, WORDS, estimators, expanders, needs_browser, running, visiting

pytestmark = [needs_browser(), pytest.mark.slow]
CATS = set(WORDS["cats"])


def chips(page):
    return page.locator("#chips .name").all_inner_texts()


def expect_chips(page, *members):
    page.wait_for_function(
        "wanted => [...document.querySelectorAll('#chips .name')].map(n => n.textContent).join('|') === wanted",
        arg="|".join(members),
    )


def additions(page, model="bayes"):
    page.wait_for_selector(f"[data-model={model}]:not([aria-busy]) ol button")
    return page.locator(f"[data-model={model}] ol .name").all_inner_texts()


def asked(page, path, body):
    """The answer of the server to the same question."""
    return page.request.post(page.url.split("#")[0] + path, data=body).json()


# -------------------------------------------------------------------------------------------------------- expanders


def test_one_click_shows_a_newcomer_a_result(visit):
    page = visit()
    page.get_by_role("button", name="lion, tiger, leopard").click()
    expect_chips(page, "lion", "tiger", "leopard")
    for model in ("bayes", "learned", "near"):
        assert len(set(additions(page, model)) & CATS) >= 7
    heads = page.locator(".column h2").all_inner_texts()
    assert heads == ["Bayesian Sets", "Deep Sets", "Nearest vectors"]
    wanted = asked(page, "v1/expand", {"query": ["lion", "tiger", "leopard"]})["candidates"]
    assert additions(page) == [found["element"] for found in wanted]


def test_typing_offers_completions_and_the_keys_choose(visit):
    page = visit()
    entry = page.get_by_role("combobox", name="Add to the set")
    entry.press_sequentially("Ti")
    option = page.get_by_role("option", name="tiger")
    option.wait_for()
    assert entry.get_attribute("aria-expanded") == "true"
    entry.press("ArrowDown")
    active = entry.get_attribute("aria-activedescendant")
    assert page.locator(f"#{active}").get_attribute("aria-selected") == "true"
    entry.press("Enter")
    expect_chips(page, "tiger")
    assert entry.input_value() == "" and entry.get_attribute("aria-expanded") == "false"
    entry.press_sequentially("le")
    page.get_by_role("option", name="leopard").wait_for()
    entry.press("Escape")
    assert entry.get_attribute("aria-expanded") == "false" and entry.input_value() == "le"
    entry.fill("PUMA")  # spelt as the vocabulary spells it
    entry.press("Enter")
    expect_chips(page, "tiger", "puma")
    entry.press("Backspace")
    expect_chips(page, "tiger")


def test_a_pasted_list_becomes_chips(visit):
    page = visit()
    page.focus("#entry")
    page.evaluate("""() => {
        const clipboardData = new DataTransfer();
        clipboardData.setData("text", "lion, tiger\\nOak\\n\\nlion");
        const paste = new ClipboardEvent("paste", {clipboardData, cancelable: true});
        document.querySelector("#entry").dispatchEvent(paste);
    }""")
    expect_chips(page, "lion", "tiger", "oak")
    page.fill("#entry", "elm,")
    expect_chips(page, "lion", "tiger", "oak", "elm")


def test_an_addition_is_added_and_undone(visit):
    page = visit("#q=lion,tiger")
    first = additions(page)[0]
    page.locator("[data-model=bayes] ol button").first.click()
    expect_chips(page, "lion", "tiger", first)
    assert first not in additions(page)
    page.wait_for_function("() => document.activeElement.closest('[data-model=bayes]')")  # so that Enter adds the next
    second = additions(page)[0]
    page.keyboard.press("Enter")
    expect_chips(page, "lion", "tiger", first, second)
    page.keyboard.press("Control+z")
    expect_chips(page, "lion", "tiger", first)
    page.get_by_role("button", name="Undo").click()
    expect_chips(page, "lion", "tiger")
    assert page.locator("#undo").is_disabled()
    page.get_by_role("button", name="Clear").click()
    assert chips(page) == [] and page.locator("#starts").is_visible()
    page.keyboard.press("Control+z")
    expect_chips(page, "lion", "tiger")


def test_the_address_is_the_query(visit):
    page = visit("#q=lion", permissions=["clipboard-read", "clipboard-write"])
    page.fill("#entry", "margay,")
    expect_chips(page, "lion", "margay")
    page.fill("#entry", "<img")
    page.get_by_role("option", name="onerror").click()
    expect_chips(page, "lion", "margay", NASTY)
    page.get_by_role("button", name="Copy link").click()
    page.get_by_role("button", name="Copied").wait_for()
    link = page.evaluate("navigator.clipboard.readText()")
    assert link == page.url and "#q=lion,margay," in link
    again = visit(address=link)
    expect_chips(again, "lion", "margay", NASTY)
    assert additions(again) == additions(page)
    assert again.title() == "Deep Sets explorer"  # what is an element to us is no element of HTML
    again.evaluate("location.hash = '#q=oak,elm'")
    expect_chips(again, "oak", "elm")


def test_members_say_how_well_they_fit_and_the_odd_one_is_marked(visit):
    page = visit("#q=lion,tiger,puma,oak")
    odd = page.locator(".chip.odd")
    odd.wait_for()
    assert odd.locator(".name").inner_text() == "oak" and "odd one?" in odd.inner_text()
    fits = asked(page, "v1/fits", {"query": ["lion", "tiger", "puma", "oak"]})
    assert fits["odd"] == 3
    shares = page.locator(".chip .meter i").evaluate_all(
        "all => all.map(i => Number(i.style.getPropertyValue('--share')))"
    )
    assert np.argsort(shares).tolist() == np.argsort(fits["fits"]).tolist()
    assert "the least of all" in odd.locator(".hidden").text_content()
    page.get_by_role("button", name="Remove oak").click()
    expect_chips(page, "lion", "tiger", "puma")


def test_unknown_elements_are_reported_once_and_the_others_are_used(visit):
    page = visit("#q=lion,zebra,tiger")
    page.get_by_role("alert").filter(has_text="'zebra'").wait_for()
    assert page.locator(".chip.unknown .name").inner_text() == "zebra"
    assert set(additions(page)) & CATS
    page.get_by_role("button", name="Remove zebra").click()
    page.wait_for_function("() => document.querySelector('#expand .problem').textContent === ''")


@pytest.fixture(scope="module")
def words_site(site):
    from deepsets.serve import words

    with running(words()) as address:
        yield site[0], address


def test_the_blend_is_shown_first_and_its_methods_behind_a_switch(words_site):
    with visiting(*words_site) as visit:
        page = visit("#q=lion,tiger")
        assert {"leopard", "panther"} <= set(additions(page, "blend"))
        assert page.locator(".column:visible h2").all_inner_texts() == ["Best answers"]
        switch = page.get_by_role("button", name="Show the methods one by one")
        assert switch.get_attribute("aria-pressed") == "false"
        switch.click()
        for model in ("bayesian-sets", "nearest-vectors", "deep-sets"):
            assert len(additions(page, model)) == 10
        assert switch.get_attribute("aria-pressed") == "true" and page.url.endswith("#q=lion,tiger&methods=1")
        again = visit(address=page.url)
        additions(again, "deep-sets")
        assert again.locator(".column:visible").count() == 4
        switch.click()
        page.wait_for_function("() => !location.hash.includes('methods')")
        assert page.locator(".column:visible").count() == 1


def test_every_answer_shows_which_members_it_goes_with(words_site):
    with visiting(*words_site) as visit:
        page = visit("#q=lion,tiger,violin")
        rows = dict(
            zip(additions(page, "blend"), page.locator("[data-model=blend] .why").all_inner_texts(), strict=True)
        )
        body = {"query": ["lion", "tiger", "violin"], "why": True}
        for reason in asked(page, "v1/expand", body)["reasons"]:
            best = reason["members"][0]["element"]
            assert best in rows[reason["element"]] or "all of them" in rows[reason["element"]]
            if reason["sets"]:
                assert rows[reason["element"]].startswith(reason["sets"][0] + " · goes with")
        assert "goes with lion and tiger" in " ".join(rows.values())
        page = visit("#q=lion")
        additions(page, "blend")
        assert "goes with" not in page.locator("#columns").inner_text()


def test_the_page_shows_that_the_server_is_working(visit):
    page = visit("#q=lion")
    additions(page)
    waiting = []
    page.route("**/v1/expand", lambda route: waiting.append(route))
    page.fill("#entry", "tiger,")
    page.locator("[data-model=bayes][aria-busy] .state").get_by_text("Looking …").wait_for()
    for route in waiting:
        route.continue_()
    page.wait_for_selector(".column[aria-busy]", state="detached")
    assert not page.locator(".state:visible").count() and additions(page)


def test_what_may_have_been_meant_is_suggested(visit):
    page = visit("#q=lion,tigre")
    page.get_by_role("alert").filter(has_text="'tigre' (did you mean tiger?)").wait_for()


def test_a_server_that_is_gone_gives_an_error_message(visit):
    page = visit("#q=lion")
    additions(page)
    page.route("**/v1/**", lambda route: route.abort())
    page.fill("#entry", "tiger,")
    page.get_by_text("The server does not answer. Is it still running?").wait_for()
    page.unroute("**/v1/**")
    page.route("**/v1/expand", lambda route: route.fulfill(status=429, json={"error": "256 requests wait already."}))
    page.fill("#entry", "puma,")
    page.get_by_text("256 requests wait already.").wait_for()


def test_the_keyboard_is_enough(visit):
    page = visit()
    press = page.keyboard.press
    page.focus("#entry")
    page.keyboard.type("lion,tiger,oak,")
    expect_chips(page, "lion", "tiger", "oak")
    press("ArrowLeft")  # to the last chip
    press("Delete")
    expect_chips(page, "lion", "tiger")
    page.focus("#entry")
    found = additions(page)
    for _ in range(4):
        press("Tab")  # undo, clear, copy, the first addition
    assert page.evaluate("document.activeElement.dataset.element") == found[0]
    press("ArrowDown")
    assert page.evaluate("document.activeElement.dataset.element") == found[1]
    press("Enter")
    expect_chips(page, "lion", "tiger", found[1])


def test_show_more_goes_on_where_the_list_ended(visit):
    page = visit("#q=lion,tiger")
    before = additions(page)
    page.locator("[data-model=bayes] .more").click()
    page.wait_for_function("() => document.querySelectorAll('[data-model=bayes] ol button').length === 20")
    after = additions(page)
    assert after[:10] == before
    assert page.evaluate("document.activeElement.dataset.element") == after[10]


def test_a_token_is_asked_for_once_and_kept_for_the_tab(site):
    with running(expanders(), token="open sesame, open") as address, visiting(site[0], address) as visit:
        page = visit("#q=lion,tiger")
        page.get_by_label("Token", exact=True).fill("wrong")
        page.keyboard.press("Enter")
        page.get_by_text("That token was not the right one.").wait_for()
        page.get_by_label("Token", exact=True).fill("open sesame, open")
        page.get_by_role("button", name="Continue").click()
        assert set(additions(page)) & CATS
        page.reload()
        assert set(additions(page)) & CATS and not page.locator("dialog").is_visible()


def test_elements_may_be_numbers(site):
    from deepsets.expand import BayesianSets
    from deepsets.serve import served

    model = BayesianSets().fit([[1, 2, 3, 4], [2, 3, 4, 5], [70, 80, 90, 100], [80, 90, 100, 110]])
    with running([served("numbers", model, [[1, 2]])]) as address, visiting(site[0], address) as visit:
        page = visit("#q=2,3")
        assert additions(page, "numbers")[0] == "4"


# ------------------------------------------------------------------------------------------------------- estimators


def drop(page, name, text):
    page.set_input_files("#file", {"name": name, "mimeType": "text/csv", "buffer": text.encode()})


def numbers(locator):
    return [float(text.replace("−", "-")) for text in locator.all_inner_texts()]


def test_a_csv_file_gets_a_prediction_and_every_member_its_part(visit):
    boxes = estimators()[1].model
    rows = np.array([[0.9, 0.1], [0.2, 0.8], [0.4, 0.3]])
    page = visit("#model=boxes")
    page.get_by_label("What is known of the whole set (1 number)").fill("1")
    drop(page, "box.csv", 'item;height;weight\nbrick;0.1;0.9\nfeather;0.8;0.2\n"a; cup";0.3;0.4\n')
    page.wait_for_selector(".plot")
    assert float(page.locator(".big").inner_text().replace("−", "-")) == pytest.approx(
        boxes.predict([rows], z=[[1.0]])[0], rel=1e-2
    )
    parts = boxes.explain([rows], z=[[1.0]])[0][:, 0]
    order = np.argsort(-abs(parts))
    table = page.locator(".numbers tbody tr")
    assert table.locator("th").all_inner_texts() == [["brick", "feather", "a; cup"][i] for i in order]
    np.testing.assert_allclose(
        numbers(table.locator("td:nth-child(4)")), parts[order], rtol=0.02, atol=abs(parts).max() / 100
    )
    assert page.locator(".plot rect.up, .plot rect.down").count() == 3
    assert "3 members" in page.locator(".plot svg").get_attribute("aria-label")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "The file is empty: wanted a row for each member."),
        ("weight,height\n", "The file has a header and no rows"),
        ("weight,height\n1,2\n3\n", "Row 2 has 1 cells; the first line has 2."),
        ("weight,height\n1,2\n3,tall\n", "Row 2 of height is “tall”; wanted a number."),
        ("1,2,3\n4,5,6\n", "The file has 3 columns of numbers; the model wants 2: weight, height."),
        ("weight,height\n1,2\n", "The model wants 1 number for the whole set; found “”."),
    ],
)
def test_a_wrong_file_gives_an_error_message(site, wrong_file_page, text, sentence):
    drop(wrong_file_page, "wrong.csv", text)
    wrong_file_page.get_by_role("alert").filter(has_text=sentence).wait_for()


@pytest.fixture(scope="module")
def wrong_file_page(site):
    with visiting(*site) as visit:
        page = visit("#model=boxes")
        page.wait_for_selector("#drop")
        yield page


def another_picture(canvas, pictures):
    """It is drawn in the next frame, whenever that comes."""
    end = time.monotonic() + 20
    while (found := canvas.screenshot()) in pictures:
        assert time.monotonic() < end, "the picture stayed as it was"
    return found


def test_a_cloud_is_seen_turned_and_explained(visit):
    shapes = estimators()[0]
    page = visit()
    page.get_by_role("link", name="shapes").click()
    page.get_by_role("button", name="Example 2").click()
    page.wait_for_selector(".plot")
    assert page.url.endswith("#model=shapes&example=2")
    cloud = np.array(shapes.examples()[1])
    share = shapes.model.predict_proba([cloud])[0]
    best = shapes.model.classes_[share.argmax()]
    assert page.locator(".big").inner_text() == best
    assert page.locator(".shares .name").all_inner_texts() == shapes.model.classes_[np.argsort(-share)].tolist()
    assert page.get_by_role("heading", name=f"What each member adds to “{best}”").is_visible()
    canvas = page.locator("canvas.cloud")
    assert re.match(r"A cloud of 120 points, [1-9]\d* of them marked", canvas.get_attribute("aria-label"))
    pictures = [canvas.screenshot()]
    canvas.focus()
    page.keyboard.press("ArrowRight")
    pictures.append(another_picture(canvas, pictures))
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + 90, box["y"] + 90)
    page.mouse.down()
    page.mouse.move(box["x"] + 150, box["y"] + 120, steps=3)
    page.mouse.up()
    another_picture(canvas, pictures)
    other = page.locator(".shares button").nth(1)
    other.click()
    name = other.locator(".name").inner_text()
    page.get_by_role("heading", name=f"What each member adds to “{name}”").wait_for()
    assert other.get_attribute("aria-pressed") == "true"
    again = visit("#model=shapes&example=2")
    again.wait_for_selector(".plot")
    assert again.locator(".big").inner_text() == best


def test_members_and_odd_ones_have_answers_too(site):
    from deepsets.estimators import MemberRegressor, OddOneOut, SetClassifier
    from deepsets.serve import served

    rng = np.random.default_rng(0)
    sets = [rng.normal(size=(5, 2)) for _ in range(20)]
    quick = {"epochs": 1, "n_estimators": 1, "random_state": 0}
    each = MemberRegressor(**quick).fit(sets, [x[:, 0] for x in sets])
    odd = OddOneOut(epochs=1, random_state=0).fit(sets, [0] * 20)
    words = SetClassifier(**quick).fit([["jam", "butter"], ["bolt", "screw"]] * 5, ["food", "iron"] * 5)
    models = [served("each", each), served("odd", odd), served("words", words)]
    with running(models) as address, visiting(site[0], address) as visit:
        page = visit("#model=each&example=1")
        page.get_by_role("heading", name="Prediction of each member").wait_for()
        page = visit("#model=odd&example=1")
        page.get_by_role("heading", name="The odd one").wait_for()
        assert re.fullmatch(r"member \d", page.locator(".big").inner_text())
        page = visit("#model=words")
        page.wait_for_selector("#drop")
        drop(page, "words.csv", "jam\nbutter\n")
        page.wait_for_selector(".plot")
        assert page.locator(".big").inner_text() in ("food", "iron")
        assert set(page.locator(".numbers tbody th").all_inner_texts()) == {"jam", "butter"}


# ------------------------------------------------------------------------------------------------- the picture


@pytest.mark.skipif("DEEPSETS_SCREENSHOT" not in os.environ, reason="DEEPSETS_SCREENSHOT=1 makes the README's picture")
def test_the_picture_of_the_readme(site, capsys):
    from deepsets.serve import words

    target = Path(__file__).parents[3] / "docs/images/explorer.png"
    target.parent.mkdir(exist_ok=True)
    with running(words()) as address, visiting(site[0], address) as visit:
        page = visit(viewport={"width": 1120, "height": 900}, reduced_motion="reduce")
        page.wait_for_selector("#starts button")
        start = time.perf_counter()
        page.evaluate("location.hash = '#q=lion,tiger,leopard,piano'")
        page.wait_for_selector(".column ol button")
        seconds = time.perf_counter() - start
        page.wait_for_load_state("networkidle")
        page.screenshot(path=target)
    assert target.stat().st_size < 200_000
    with capsys.disabled():
        print(f"\nfirst expansion after {seconds:.2f} s")  # noqa: T201
