"""`cohort dataset prepare` of data sets with several node types."""

import json
from pathlib import Path

import pytest
import torch
from batches import expect_same_passes
from processes import cohort
from torch_geometric.data import HeteroData

import cohort_gnn as package
from cohort_gnn import CohortError, NeighborLoader
from cohort_gnn.dataset import open as open_dataset

pytestmark = pytest.mark.usefixtures("shm")


@pytest.fixture
def graph(tmp_path) -> Path:
    """Papers with rows that a codec shortens, fields with float16, years with one number, authors without features."""
    generator = torch.Generator().manual_seed(2)
    data = HeteroData()
    data["paper"].x = torch.rand(3000, 64, generator=generator) / 8 + 1
    data["paper"].y = torch.randint(3, (3000,), generator=generator)
    data["field"].x = torch.randn(200, 33, generator=generator).half()
    data["author"].num_nodes = 500
    data["year"].x = torch.randn(7, 1, generator=generator)
    for name, source in (("on", "field"), ("writes", "author"), ("of", "year")):
        ends = [torch.randint(data[source].num_nodes, (9000,), generator=generator)]
        ends.append(torch.randint(3000, (9000,), generator=generator))
        data[source, name, "paper"].edge_index = torch.stack(ends)
    return package.from_pyg(data, tmp_path / "papers", reverse_edges=True)


def prepare(graph: Path, *options, code: int = 0) -> str:
    done = cohort("dataset", "prepare", graph, *options)
    assert done.returncode == code, done.stderr
    return done.stderr


def batches(graph: Path, device: str = "cpu", **options) -> list[HeteroData]:
    with NeighborLoader(graph, [4, 3], "paper", batch_size=500, device=device, seed=1, **options) as loader:
        return [batch.clone().to("cpu") for batch in loader]


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_encoded_rows_make_the_same_batches(graph, device):
    raw = batches(graph)
    said = prepare(graph, "--codec", "exponent")
    assert (
        all(f"prepared/{name}.features.ibp: " in said for name in ("paper", "field", "year")) and "author" not in said
    )
    tables = open_dataset(graph).node_types
    assert {name: table.encoded_rows is not None for name, table in tables.items()} == {
        "paper": True,
        "field": True,
        "author": False,
        "year": True,
    }
    expect_same_passes(batches(graph, device), raw)
    expect_same_passes(batches(graph, device, compress="none"), raw)
    said = prepare(graph, "--codec", "exponent", "--drop-raw")
    assert said.count("removed after comparing all rows") == 3
    tables = open_dataset(graph).node_types
    assert tables["paper"].x is None and tables["paper"].feature_dim == 64 and tables["author"].feature_dim == 0
    for compress in ("auto", "host", "none"):
        expect_same_passes(batches(graph, device, compress=compress), raw)
    with pytest.raises(CohortError) as error:
        tables["paper"].x_float32()
    assert "cohort ibp decode" in error.value.hint


def test_types_that_encoding_lengthens_stay_raw(tmp_path):
    generator = torch.Generator().manual_seed(4)
    data = HeteroData()
    data["paper"].x = torch.randint(256, (150_000, 3), dtype=torch.uint8, generator=generator)
    data["paper"].y = torch.randint(3, (150_000,), generator=generator)
    data["field"].x = torch.randn(200, 33, generator=generator)
    data["field", "on", "paper"].edge_index = torch.randint(200, (2, 900), generator=generator)
    graph = package.from_pyg(data, tmp_path / "papers")
    raw = batches(graph)[:3]
    for options in ([], ["--drop-raw"]):
        said = prepare(graph, *options)
        assert "paper.features.ibp: not written, because it would be" in said and "runs read the raw rows" in said
        tables = open_dataset(graph).node_types
        assert tables["paper"].encoded_rows is None and tables["field"].encoded_rows is not None
        assert tables["paper"].x is not None and (tables["field"].x is None) == bool(options)
        expect_same_passes(batches(graph)[:3], raw)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda text: text | {"version": 1}, "format cohort-prepared version 1"),
        (lambda text: text | {"tables": 3}, "3"),
        (lambda text: {name: text[name] for name in ("format", "version")}, "none"),
        (lambda text: text | {"tables": [text["tables"][0] | {"type": "venue"}]}, "venue"),
        (lambda text: text | {"tables": [text["tables"][0] | {"file": "../paper.features.npy"}]}, "../paper"),
        (lambda text: text | {"tables": [text["tables"][0] | {"file": "other.ibp"}]}, "no such file"),
        (lambda text: text | {"tables": [text["tables"][0] | {"raw_bytes": 5}]}, "a file that has changed since"),
        (lambda text: text | {"tables": [[]]}, "none"),
    ],
)
def test_damage_is_named(graph, change, found):
    prepare(graph, "--codec", "exponent")
    file = graph / "prepared" / "prepared.json"
    file.write_text(json.dumps(change(json.loads(file.read_text()))))
    with pytest.raises(CohortError) as error:
        open_dataset(graph)
    assert found in error.value.found and "cohort dataset prepare" in error.value.hint
