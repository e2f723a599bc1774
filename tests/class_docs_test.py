"""The description of each public class that users make begins with an example, which runs."""

import doctest
import importlib
import inspect

import pytest
import torch
import torch.distributed as dist

import cohort_gnn as cohort

PACKAGES = ["cohort_gnn", "cohort_gnn.nn", "cohort_gnn.dataset", "cohort_gnn.ibp"]
# What functions and members hand out; nobody makes it.
GIVEN = {"Changes", "HeldOut", "NodeTable", "Problem", "Relation", "Replacement", "StoredGraph", "TableStats"}
MOST_LINES_BEFORE = 5  # of the summary


def public_classes() -> dict[str, type]:
    found = {}
    for package in map(importlib.import_module, PACKAGES):
        things = ((name, getattr(package, name)) for name in package.__all__)
        found |= {f"{package.__name__}.{name}": thing for name, thing in things if inspect.isclass(thing)}
    return found


CLASSES = {name: each for name, each in public_classes().items() if name.rpartition(".")[2] not in GIVEN}


@pytest.fixture(scope="module")
def folder(tmp_path_factory, cora):
    """With the data sets that examples name."""
    root = tmp_path_factory.mktemp("examples")
    (root / "data").mkdir()
    (root / "data/cora").symlink_to(cora)
    cohort.dataset.generate_typed(root / "data/types", nodes=600, edges=3000, dim=8, classes=3)
    return root


@pytest.fixture
def one_rank():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_opens_with_an_example_that_runs(name, folder, shm, monkeypatch, request):
    if name == "cohort_gnn.ShardedRows":
        request.getfixturevalue("one_rank")
    if name == "cohort_gnn.Scorer":
        cohort.train(folder / "data/cora", folder / "runs/first", device="cpu", epochs=1, hidden=8, quiet=True)
    monkeypatch.chdir(folder)
    text = inspect.getdoc(CLASSES[name])
    lines = text.splitlines()
    first = next((number for number, line in enumerate(lines) if line == "Examples:"), len(lines))
    assert first <= MOST_LINES_BEFORE, f"{name}: no example, or one in line {first}"
    example = doctest.DocTestParser().get_doctest(text, {"cohort": cohort, "torch": torch}, name, None, 0)
    said: list[str] = []
    result = doctest.DocTestRunner().run(example, out=said.append)
    assert result.attempted and not result.failed, "".join(said)


def test_what_has_no_example_is_public():
    assert {name.rpartition(".")[2] for name in public_classes()} >= GIVEN
