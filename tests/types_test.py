"""Types: mypy finds nothing wrong in the package, and users' type checkers see its types."""

import ast
import importlib
import importlib.util
import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest
from processes import ALL_TESTS

import cohort_gnn as cohort

ROOT = Path(__file__).resolve().parents[1]

RIGHT = """
import cohort_gnn as cohort
from cohort_gnn import CohortError, NeighborLoader

data = cohort.dataset.open("data")
nodes: int = data.num_nodes
loader = NeighborLoader(data, [4], data.train_ids, batch_size=2)
batches: int = len(loader)


class Log(cohort.Callback):
    pass
"""
WRONG = """
import cohort_gnn as cohort

text: str = cohort.dataset.open("data").num_nodes
loader = cohort.NeighborLoader("data", 4)
cohort.NoLoader()
"""


@pytest.fixture(scope="module")
def mypy(tmp_path_factory):
    """mypy(*arguments, cwd): the errors that it prints, as lines; what it knows of the package stays in the build."""
    if importlib.util.find_spec("mypy") is None:
        pytest.skip(f"mypy is not installed: {sys.executable} -m pip install mypy")
    build = os.environ.get("COHORT_BUILD")
    known = Path(build) / "mypy" if build and not ALL_TESTS else tmp_path_factory.mktemp("mypy")
    known.mkdir(exist_ok=True)

    def run(*arguments, cwd: Path = known) -> list[str]:
        command = [sys.executable, "-m", "mypy", "--config-file", ROOT / "pyproject.toml", "--cache-dir", known]
        env = os.environ | {"MYPYPATH": str(ROOT / "python")}  # the checkout's: no build is needed
        options = {"capture_output": True, "text": True, "env": env, "timeout": 250, "cwd": cwd}
        result = subprocess.run([*map(str, command), "--no-error-summary", *map(str, arguments)], **options)
        assert result.returncode in (0, 1) and not result.stderr, result.stdout + result.stderr
        return result.stdout.splitlines()

    return run


def test_mypy_finds_nothing(mypy):
    assert mypy() == []


def test_users_see_types(mypy, tmp_path):
    (tmp_path / "right.py").write_text(RIGHT)
    (tmp_path / "wrong.py").write_text(WRONG)
    found = mypy("right.py", "wrong.py", cwd=tmp_path)  # it remembers the names of files, too
    places = [line.split(": error: ")[0] for line in found if ": error: " in line]
    assert places == [f"wrong.py:{line}" for line in (4, 5, 6)], found


def test_signatures_show_no_private_parameters():
    private, seen = [], set()
    for package in (cohort, *(getattr(cohort, name) for name in cohort._PACKAGES)):
        for name in dir(package):
            found = getattr(package, name)
            if name.startswith("_") or not callable(found) or not getattr(found, "__module__", "").startswith("cohort"):
                continue
            seen.add(name)
            parameters = inspect.signature(found).parameters
            private += [f"{name}: {each}" for each in parameters if each.startswith("_")]
    assert private == [] and {"NeighborLoader", "LinkNeighborLoader", "from_pyg", "fetch", "SAGEConv"} <= seen, seen


def test_the_package_says_that_it_has_types():
    folder = Path(cohort.__file__).parent
    assert (folder / "py.typed").exists()
    modules = {path.parent for path in folder.rglob("_native*.so")}
    assert {path.parent for path in folder.rglob("_native.pyi")} == modules != set()


def names_of(stub: str) -> dict[str, set[str]]:
    """Of a stub, the names of functions and other values, and those of each class."""
    tree = ast.parse(stub)
    kinds = (ast.FunctionDef, ast.ClassDef)
    names = {"": {node.name for node in tree.body if isinstance(node, kinds)}}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            names[node.name] = {each.name for each in node.body if isinstance(each, kinds)}
    return names


@pytest.mark.parametrize("package", ["ibp", "dataset", "cache", "trainer.loader", "nn"])
def test_stubs_are_those_of_the_modules(package, tmp_path):
    """python -m nanobind.stubgen -m cohort_gnn.PACKAGE._native writes one beside the module, in a build with CUDA."""
    pytest.importorskip("nanobind")
    module, folder = importlib.import_module(f"cohort_gnn.{package}._native"), package.replace(".", "/")
    command = [sys.executable, "-m", "nanobind.stubgen", "-m", module.__name__, "-o", tmp_path / "out.pyi"]
    subprocess.run(command, check=True, capture_output=True, timeout=100)
    found, kept = (
        names_of((tmp_path / "out.pyi").read_text()),
        names_of((ROOT / "python/cohort_gnn" / folder / "_native.pyi").read_text()),
    )
    assert found and all(names <= kept.get(place, set()) for place, names in found.items())
    assert found == kept or not importlib.import_module("cohort_gnn.ibp._native").with_cuda


def test_the_links_of_the_checkout_are_the_package():
    def modules_of(folder: Path) -> set[str]:
        paths = [*folder.glob("*.py"), *folder.glob("*/*.py"), *folder.glob("*/*/*.py")]
        return {str(path.relative_to(folder)) for path in paths}

    built = modules_of(Path(cohort.__file__).parent)
    assert built <= modules_of(ROOT / "python/cohort_gnn") and len(built) > 150


@pytest.mark.parametrize("package", [cohort, cohort.dataset])
def test_type_checkers_see_the_names_that_are_loaded_on_first_use(package):
    file = Path(package.__file__)
    tree = ast.parse(file.read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If) and isinstance(node.test, ast.Name))
    seen = {name.name: node.module for node in block.body for name in node.names}
    assert seen == package._HOMES | dict.fromkeys(getattr(package, "_PACKAGES", ()), "cohort_gnn")
    assert not [name for name in package._HOMES if (file.parent / f"{name}.py").exists()], "that would be the module"
