"""Public names of the packages that users import from: a page of the reference, and code that is run and uses them."""

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMES = ["sets", "nn", "train", "estimators", "expand", "io", "distributed", "serve", "plot", "testing"]
PAGES = [*ROOT.glob("docs/**/*.md"), ROOT / "README.md", *ROOT.glob("src/deepsets/**/*.py")]


def executed_code():
    """Lines of the doctests of pages and docstrings, and the scripts of the gallery: all of them are run by tests."""
    lines = (line.strip() for path in PAGES for line in path.read_text().splitlines())
    shown = [line for line in lines if line.startswith((">>>", "..."))]
    return "\n".join(shown + [path.read_text() for path in ROOT.glob("examples/*.py")])


@pytest.mark.parametrize("name", NAMES)
def test_public_names_have_an_example(name):
    package, code = importlib.import_module(f"deepsets.{name}"), executed_code()
    names = getattr(package, "__all__", None) or ["assert_equivariant", "assert_invariant"]
    assert [each for each in names if not re.search(rf"\b{each}\b", code)] == []


def test_every_package_has_a_page_of_the_reference():
    packages = {path.parent.name for path in (ROOT / "src" / "deepsets").glob("*/__init__.py")} - {"cli"}
    for name in packages | {"plot", "testing"}:
        assert f"::: deepsets.{name}\n" in (ROOT / "docs" / "api" / f"{name}.md").read_text()
