"""Public names of the packages that users import from: a page of the reference, and code that is run and uses them."""

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "deepsets"
NAMES = ["sets", "nn", "train", "estimators", "expand", "io", "distributed", "serve", "plot", "testing"]


def examples(paths):
    """Lines of the doctests of pages or docstrings; all of them are run by tests."""
    lines = (line.strip() for path in paths for line in path.read_text().splitlines())
    return "\n".join(line for line in lines if line.startswith((">>>", "...")))


def executed_code(package):
    """Examples that import or qualify names of a package, and those of the docstrings of the package itself."""
    pages = examples([*ROOT.glob("docs/**/*.md"), ROOT / "README.md", *SOURCE.glob("**/*.py")])
    scripts = "\n".join(path.read_text() for path in ROOT.glob("examples/*.py"))
    imported = rf"from deepsets(?:\.{package})? import (?:\([^)]*\)|[^\n]*)|\b{package}\.\w+"
    own = [*SOURCE.glob(f"{package}/**/*.py"), *SOURCE.glob(f"{package}.py")]
    own_calls = re.findall(r"\b\w+(?=[(.])", examples(own))
    return "\n".join(re.findall(imported, f"{pages}\n{scripts}") + own_calls)


@pytest.mark.parametrize("package", NAMES)
def test_public_names_have_an_example(package):
    module, code = importlib.import_module(f"deepsets.{package}"), executed_code(package)
    names = getattr(module, "__all__", None) or ["assert_equivariant", "assert_invariant"]
    code = re.sub(r"^from deepsets\S* import", "", code, flags=re.M)
    assert [each for each in names if not re.search(rf"\b{each}\b", code)] == []


def test_every_package_has_a_page_of_the_reference():
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")} - {"cli"}
    for name in packages | {"plot", "testing"}:
        assert f"::: deepsets.{name}\n" in (ROOT / "docs" / "api" / f"{name}.md").read_text()
