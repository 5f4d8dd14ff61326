"""The server and the browser that the tests of the explorer page share."""

import pytest

from tests.deepsets.serve.page import chromium, estimators, expanders, running, visiting


@pytest.fixture(scope="module")
def site():
    with running(expanders() + estimators()) as address, chromium() as browser:
        yield browser, address


@pytest.fixture
def visit(site):
    with visiting(*site) as visit:
        yield visit
