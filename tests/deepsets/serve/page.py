"""What the tests of the explorer page share: small models, the real server in a thread, Chromium."""

from __future__ import annotations

import contextlib
import functools
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

KINDS = {
    "cats": "lion tiger leopard puma lynx cheetah jaguar ocelot serval caracal bobcat margay",
    "trees": "oak elm birch ash fir pine cedar maple willow larch beech yew",
    "colours": "red green blue yellow orange purple violet brown black white grey pink",
    "cities": "paris london tokyo berlin madrid rome lisbon vienna oslo prague cairo delhi",
}
WORDS = {kind: words.split() for kind, words in KINDS.items()}
NASTY = '<img src=x onerror="document.title=1">, 100%&#'  # an element that must stay text, here and in the address
WORDS["cats"].append(NASTY)
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
FLAGS += "--disable-component-update --disable-sync"
SHAPES = ["ball", "rod", "sheet"]


def needs_browser() -> Any:
    """Skips a module where there is no Chromium to drive."""
    if CHROMIUM is None:
        return pytest.mark.skip(reason="no chromium here (apt-get install chromium)")
    try:
        import playwright  # noqa: F401
    except ImportError:
        return pytest.mark.skip(reason="no playwright here (pip install --group test)")
    return pytest.mark.filterwarnings("ignore::ResourceWarning")


@functools.cache
def expanders() -> list[Any]:
    """Three expanders over words of four kinds."""
    from deepsets.expand import BayesianSets, NearestVectors, SetExpander
    from deepsets.serve import served

    rng = np.random.default_rng(0)
    vocabulary = [word for words in WORDS.values() for word in words]
    sets = [rng.choice(words, 7, replace=False).tolist() for words in WORDS.values() for _ in range(25)]
    vectors = np.concatenate([rng.normal(rng.normal(size=8), 0.4, (len(words), 8)) for words in WORDS.values()])
    examples = [["lion", "tiger", "leopard"], ["oak", "elm", "birch"], ["lion", "tiger", "puma", "oak"]]
    small = {"embedding": 16, "phi": (32,), "rho": (32,), "negatives": 32, "batch_size": 20, "epochs": 20}
    learned = SetExpander(concat=True, loss="softmax", query=(2, 4), learning_rate=0.01, **small).fit(sets)
    return [
        served("bayes", BayesianSets().fit(sets, vocabulary=vocabulary), examples),
        served("learned", learned, examples),
        served("near", NearestVectors((vocabulary, vectors), components=0).fit(), examples),
    ]


def shape(kind: str, rng: np.random.Generator, count: int = 120) -> np.ndarray:
    """(count, 3) points of a ball, along a rod, or on a sheet."""
    return (
        rng.normal(size=(count, 3)) * {"ball": [0.5, 0.5, 0.5], "rod": [0.1, 0.1, 1], "sheet": [0.7, 0.7, 0.05]}[kind]
    )


@functools.cache
def estimators() -> list[Any]:
    """A classifier of clouds, and a regressor of named features with a number known of each set."""
    import pandas as pd

    from deepsets.estimators import SetClassifier, SetRegressor
    from deepsets.serve import served

    rng = np.random.default_rng(0)
    clouds = [shape(kind, rng, 40) for kind in SHAPES * 12]
    shapes = SetClassifier(epochs=4, random_state=0).fit(clouds, SHAPES * 12)
    table = pd.DataFrame(rng.random((200, 2)), columns=["weight", "height"]).assign(box=np.repeat(np.arange(40), 5))
    boxes = SetRegressor(by="box", epochs=4, random_state=0)
    boxes.fit(table, table.groupby("box")["weight"].sum().to_numpy(), z=np.ones((40, 1)))
    few = [shape("rod", rng).round(3).tolist(), shape("sheet", rng).round(3).tolist()]
    return [served("shapes", shapes, few, "shapes from points"), served("boxes", boxes)]


@contextlib.contextmanager
def running(models: list[Any], **options: Any) -> Iterator[str]:
    """The address of a server of the real app, in a thread."""
    import uvicorn

    from deepsets.serve import create_app

    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(create_app(models, **options), log_config=None, access_log=False)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        server.should_exit = True
        thread.join(10)


@contextlib.contextmanager
def chromium() -> Iterator[Any]:
    """Debian's Chromium, without a window."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS.split())
        yield browser
        browser.close()


@contextlib.contextmanager
def visiting(browser: Any, address: str) -> Iterator[Any]:
    """Opens pages, and closes them; fails if one had an error in its scripts, or did what the policy forbids."""
    broken: list[str] = []
    contexts: list[Any] = []

    def hear(message: Any) -> None:
        if message.type == "error" and "Failed to load resource" not in message.text:  # a 4xx is an answer
            broken.append(message.text)

    def visit(fragment: str = "", *, address: str = address, **options: Any) -> Any:
        context = browser.new_context(**{"viewport": {"width": 1180, "height": 800}, **options})
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: broken.append(str(error)))
        page.on("console", hear)
        page.goto(address + fragment)
        page.wait_for_selector("main:not([aria-busy]), dialog[open]")  # its scripts listen, or it asks for a token
        return page

    yield visit
    for context in contexts:
        context.close()
    assert broken == []


def page_folder() -> Path:
    import deepsets

    return Path(deepsets.__file__).parent / "serve" / "page"
