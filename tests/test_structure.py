"""The architecture, checked: which package imports which, what is private, and that public names are documented."""

import ast
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import deepsets

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "deepsets"
ORDER = ("files", "sets", "nn", "train", "estimators", "expand", "io", "distributed", "serve", "cli")
AFTER = {"testing": "nn", "plot": "estimators", "versions": "nn"}  # modules of their own, and the last package they use
MOST_LINES, MOST_MODULES = 22_250, 120
PACKAGES = ("sets", "nn", "train", "estimators", "expand", "io", "distributed", "serve", "cli")


def imports(path):
    """(module, name) for every import of deepsets in a file, as absolute names."""
    parts = path.relative_to(ROOT / "src").with_suffix("").parts
    package = parts[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield from ((module, alias.name) for alias in node.names)


def owner(module, name=None):
    """The package of `deepsets` that an import reaches into, or None."""
    parts = module.split(".")
    if parts[0] != "deepsets":
        return None
    if len(parts) > 1:
        return parts[1]
    return name if name in ORDER or name in AFTER else None


FILES = sorted(SOURCE.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_package_imports_only_packages_before_it(path):
    mine = path.relative_to(SOURCE).with_suffix("").parts[0]
    if mine in ("__init__", "__main__"):
        return
    limit = ORDER.index(AFTER.get(mine, mine))
    for module, name in imports(path):
        other = owner(module, name)
        if other is not None and other not in (mine, "__init__"):
            assert ORDER.index(AFTER.get(other, other)) <= limit, f"{path} imports {module} ({name})"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_package_imports_private_names_of_another(path):
    mine = path.relative_to(SOURCE).with_suffix("").parts[0]
    for module, name in imports(path):
        other = owner(module, name)
        if other in (None, mine):
            continue
        private = [part for part in [*module.split("."), name or ""] if re.match(r"_(?!_)", part)]
        assert not private, f"{path} imports {module} ({name})"


def test_the_library_never_imports_the_reproduction():
    found = [path for path in FILES for module, _ in imports(path) if module.split(".")[0] == "paper"]
    assert found == []


def test_importing_the_layers_needs_neither_scikit_learn_nor_pandas_nor_pyarrow():
    code = "import sys, deepsets; print(*[m for m in ('sklearn', 'pandas', 'pyarrow', 'ray') if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == ""


def test_fit_and_predict_of_one_file_never_import_the_distributed_code():
    code = (
        "import sys; import deepsets.cli.fit, deepsets.cli.predict, deepsets.io, deepsets.estimators;"
        "print('deepsets.distributed' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"


def public():
    for name in PACKAGES:
        if name == "cli":
            continue
        package = importlib.import_module(f"deepsets.{name}")
        for attribute in package.__all__:
            value = getattr(package, attribute)
            if inspect.isclass(value) or inspect.isfunction(value):
                yield pytest.param(value, id=f"{name}.{attribute}")


@pytest.mark.parametrize("name", PACKAGES)
def test_every_package_lists_its_public_names(name):
    package = importlib.import_module(f"deepsets.{name}")
    assert sorted(package.__all__) == sorted(set(package.__all__))
    assert all(hasattr(package, each) for each in package.__all__)


def signatures(value):
    """(what, docstring, parameters) of a function, or of a class and its public methods."""
    if inspect.isfunction(value):
        yield value.__name__, inspect.getdoc(value) or "", parameters(value)
        return
    own = (base.__dict__.get("__init__") for base in value.__mro__ if base.__module__.startswith("deepsets"))
    init = next((found for found in own if found is not None), None)
    fields = getattr(value, "_fields", None)
    yield value.__name__, inspect.getdoc(value) or "", list(fields) if fields else parameters(init) if init else []


def parameters(function):
    names = inspect.signature(function).parameters
    variadic = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return [n for n, p in names.items() if n not in ("self", "cls") and p.kind not in variadic]


@pytest.mark.parametrize("value", list(public()))
def test_public_names_document_their_parameters(value):
    if inspect.isclass(value) and issubclass(value, BaseException):
        assert inspect.getdoc(value)
        return
    for what, doc, names in signatures(value):
        assert doc, what
        if not names:
            continue
        section = re.search(r"^(?:Parameters|Attributes)\n-{3,}\n(.*?)(?=^\w[^\n]*\n-{3,}\n|\Z)", doc, re.M | re.S)
        assert section, f"{what} has no Parameters section"
        documented = set()
        for line in re.findall(r"^(\S[^\n]*?)(?: :.*)?$", section[1], re.M):
            documented |= {part.strip().lstrip("*") for part in line.split(",")}
        assert set(names) <= documented, f"{what}: {sorted(set(names) - documented)} not documented"


def test_no_module_is_a_giant():
    sizes = {path: len(path.read_text().splitlines()) for path in FILES}
    assert {path: size for path, size in sizes.items() if size > 400} == {}


def test_the_library_does_not_grow_unnoticed():
    """Raise the limits only for something that users asked for; lower them after a simplification."""
    lines = sum(len(path.read_text().splitlines()) for path in FILES)
    assert lines <= MOST_LINES
    assert len(FILES) <= MOST_MODULES


@pytest.mark.parametrize("folder", ["deepsets", "paper"])
def test_tests_are_named_after_the_modules_they_test(folder):
    """`tests/deepsets/nn/test_pooling_state.py` is about `nn.pooling`, `test_nn.py` about the package."""
    source = SOURCE if folder == "deepsets" else ROOT / folder
    tests = sorted((ROOT / "tests" / folder).rglob("test_*.py"))
    unnamed = []
    for path in tests:
        package = source / path.parent.relative_to(ROOT / "tests" / folder)
        names = [package.name, *(each.stem.strip("_") for each in package.iterdir())]
        if not any(path.stem == f"test_{name}" or path.stem.startswith(f"test_{name}_") for name in names):
            unnamed.append(path.relative_to(ROOT))
    assert tests and unnamed == []


def test_tests_import_modules_of_tests_that_exist():
    """Also those that are skipped here, because an extra is not installed."""
    missing = []
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            module = (node.module or "") if isinstance(node, ast.ImportFrom) and not node.level else ""
            place = ROOT.joinpath(*module.split("."))
            if module.startswith("tests") and not place.is_dir() and not place.with_suffix(".py").exists():
                missing.append((path.relative_to(ROOT), module))
    assert missing == []


def test_all_modules_can_be_imported():
    for module in pkgutil.walk_packages(deepsets.__path__, "deepsets."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
