"""Formats of other tools that are not read are called by their names, with what makes a source of them."""

from __future__ import annotations

import json
from pathlib import Path

import networkx
import numpy as np
import pytest
import torch
from import_helpers import edge_pairs, imported, refusal
from torch_geometric.data import TemporalData
from torch_geometric.utils import from_networkx

import cohort_gnn as cohort
from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.dataset.layouts import foreign

GRAPHSTORM = {"version": "gconstruct-v0.1", "nodes": [], "edges": []}
FILES = {
    "x.nt": ("<a> <b> <c> .\n", "triples of RDF", "relation: relation"),
    "x.ncol": ("0 1 0.5\n", "NCOL of igraph", "--format csv"),
    "x.h5ad": ("", "an AnnData", "anndata.read_h5ad('x.h5ad')"),
    "x": (b"KUZU\x27\0", "a database of Kuzu", "EXPORT DATABASE"),
    "x.bin": (b"\x3f\xa1\xb4\x46\xf0\x4f\x2e\xdd", "a graph of DGL", "dgl.load_graphs('x.bin')"),
    "out.x": ("% sym unweighted\n1 2\n", "an edge list of KONECT", "--format csv --columns 0,1"),
    "x.json": (json.dumps(GRAPHSTORM), "a configuration of GraphStorm", "source_id_col source"),
    "y.json": ('{"graph_name": "g", "part_method": "metis"}', "a partitioned graph of DGL", "before"),
    "x.jsonl": ('{"src": 0, "dst": 1}\n', "lines of JSON", "read_json('x.jsonl')"),
    "rows.json": ('[{"src": 0, "dst": 1}]', "rows of JSON", "read_json('rows.json')"),
    "x.tar.gz": (b"\x1f\x8b\x08", "an archive of tar", "tar xf x.tar.gz"),
    "x.zip": (b"PK\x03\x04", "an archive of zip", "unzip x.zip"),
    "x.xlsx": (b"PK\x03\x04", "a table of Excel", "pandas.read_excel('x.xlsx')"),
    "x.avro": (b"Obj\x01\x04", "an Avro file", "fastavro.reader"),
    "sep.csv": ("sep=;\nsrc;dst\n0;1\n", "a text whose first line is for Excel", "tail -n +2 sep.csv"),
    "meta.yaml": ("# mine\ndataset_name: toy\nedge_data:\n- file_name: e.csv\n", "a CSVDataset of DGL", "node_id"),
}
FOLDERS = {
    "tu": (("T_A.txt", "T_graph_indicator.txt"), "many small graphs of TUDataset", "nodes of one large graph"),
    "kuzu": (("schema.cypher", "copy.cypher", "A.csv"), "an export of Kuzu", "source: a.id"),
    "lance": (("_versions/1", "data/1.lance"), "a table of Lance", "lance.dataset('lance')"),
    "zarr": (("zarr.json", "c/0"), "an array of Zarr", "zarr.open('zarr')[:]"),
    "group": ((".zgroup", "X/.zarray"), "arrays of Zarr", "zarr.open('group')[NAME]"),
    "parts": (("part0/graph.dgl",), "a partitioned graph of DGL", "before it was partitioned"),
}


@pytest.mark.parametrize("name", [*FILES, *FOLDERS])
def test_what_is_not_read_is_named_with_its_cure(tmp_path, name):
    content, what, cure = (FILES | FOLDERS)[name]
    if name in FOLDERS:
        for file in content:
            (tmp_path / name / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name / file).write_text("1\n")
    elif isinstance(content, bytes):
        (tmp_path / name).write_bytes(content)
    else:
        (tmp_path / name).write_text(content)
    error = refusal(tmp_path / name, features="ones")
    assert error.found == what and cure in error.hint and "{0}" not in error.hint


PLACEHOLDERS = {
    "version https://git-lfs.github.com/spec/v1\nsize 12345\n": (
        "a pointer of Git LFS",
        "git lfs pull",
    ),
    "<!DOCTYPE html>\n<html><body>log in</body></html>\n": ("a page of HTML", "download the file again"),
    '<?xml version="1.0"?><Error><Code>AccessDenied</Code></Error>': ("a refusal of a server", "the right to read"),
}


@pytest.mark.parametrize("text", PLACEHOLDERS)
@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".npy", ".npz", ".pt", ".safetensors", ".mtx", ".csv.gz", ""])
def test_what_stands_in_the_place_of_a_file_is_named(tmp_path, suffix, text):
    (tmp_path / f"e{suffix}").write_text(text)
    what, cure = PLACEHOLDERS[text]
    error = refusal(tmp_path / f"e{suffix}", features="ones")
    assert error.found == what and cure in error.hint
    if suffix in (".csv", ".parquet", ".npy", ".pt", ".safetensors"):
        np.save(tmp_path / "edges.npy", np.array([[0, 1], [1, 0]]))
        assert refusal(tmp_path / "edges.npy", features=tmp_path / f"e{suffix}").found == what


def test_a_csv_dataset_of_dgl_is_known_by_its_meta_yaml(tmp_path):
    (tmp_path / "meta.yaml").write_text("dataset_name: toy\n")
    (tmp_path / "nodes.csv").write_text("node_id\n0\n")
    assert refusal(tmp_path).found == "a CSVDataset of DGL"


@pytest.mark.parametrize("suffix", foreign.NETWORKX)
def test_networkx_reads_what_its_hint_says(tmp_path, suffix):
    graph, file = networkx.path_graph(5), tmp_path / f"g{suffix}"
    name, read = foreign.NETWORKX[suffix]
    assert hasattr(networkx, read)
    if read == "read_leda":
        edges = [f"{i} {i + 1} 0 |{{}}|" for i in range(1, 5)]
        file.write_text("\n".join(["LEDA.GRAPH", "void", "void", "-2", "5", *["|{}|"] * 5, "4", *edges]) + "\n")
    else:
        getattr(networkx, read.replace("read", "write"))(graph, file)
    error = refusal(file)
    assert error.found == name and f"from_networkx(networkx.{read}('{file.name}'))" in error.hint
    assert ("coordinates" in error.hint) == (name == "Pajek")
    data = from_networkx(getattr(networkx, read)(file))
    data.x, data.y = torch.ones(data.num_nodes, 1), None
    stored = open_dataset(cohort.from_pyg(data, tmp_path / "out"))
    assert len({tuple(sorted(pair)) for pair in edge_pairs(stored)}) == 4 and stored.num_nodes == 5


def test_node_link_data_of_networkx(tmp_path):
    (tmp_path / "g.json").write_text(json.dumps(networkx.node_link_data(networkx.path_graph(5))))
    error = refusal(tmp_path / "g.json")
    assert error.found == "node-link data of networkx" and "json.load(open('g.json'))" in error.hint


def test_konect_is_read_as_its_hint_says(tmp_path):
    (tmp_path / "out.web").write_text("% asym weighted\n% 3 3 3\n1 2 0.5 1200000\n2 3 1.5 1200001\n")
    ids = tmp_path / "ids.npy"
    np.save(ids, np.arange(1, 4))
    options = {"format": "csv", "columns": ["0", "1"], "weight_column": "2", "node_ids": ids, "features": "ones"}
    data = imported(tmp_path / "out.web", **options)
    assert edge_pairs(data) == [(0, 1), (1, 2)] and data.edge_weights.tolist() == [0.5, 1.5]


@pytest.mark.parametrize(
    ("header", "row"),
    [
        (":START_ID,name:string,:END_ID,:TYPE", "0,9,1,KNOWS"),
        (":END_ID(Person),weight:float,:START_ID(Person)", "1,9,0"),
        ("src_id:int64,dst_id:int64,weight:float", "0,1,9"),
        ("weight:float,dst:string,src:string", "9,1,0"),
    ],
)
def test_names_of_ends_may_say_their_types(tmp_path, header, row):
    (tmp_path / "e.csv").write_text(f"{header}\n{row}\n")
    assert edge_pairs(imported(tmp_path / "e.csv", features="ones")) == [(0, 1)]


def test_ids_of_two_types_of_neo4j_are_not_mixed(tmp_path):
    (tmp_path / "e.csv").write_text(":START_ID(Person),:END_ID(Movie)\n0,1\n1,0\n")
    error = refusal(tmp_path / "e.csv", features="ones")
    assert error.found == "ids of Person and of Movie" and "graph.yaml" in error.hint
    (tmp_path / "n.csv").write_text("age:int,personId:ID\n3,1\n4,0\n")
    (tmp_path / "e.csv").write_text(":START_ID(Person),:END_ID(Person)\n0,1\n1,0\n")
    error = refusal(tmp_path / "e.csv", features=tmp_path / "n.csv", feature_columns=["age:int"])
    assert "personId:ID" in error.hint
    data = imported(
        tmp_path / "e.csv", features=tmp_path / "n.csv", feature_columns=["age:int"],
        id_column={"features": "personId:ID"},
    )  # fmt: skip
    assert data.x[:, 0].tolist() == [3, 4]


@pytest.mark.parametrize("name", ["zarr", "lance", "x.h5ad", "x.jsonl"])
def test_rows_in_other_formats_are_named_too(tmp_path, name):
    content, what, cure = (FILES | FOLDERS)[name]
    for file in content if name in FOLDERS else ():
        (tmp_path / name / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name / file).write_text("1\n")
    if name in FILES:
        (tmp_path / name).write_text(content)
    np.save(tmp_path / "e.npy", np.array([[0, 1], [1, 0]]))
    error = refusal(tmp_path / "e.npy", features=tmp_path / name)
    assert error.found == what and cure in error.hint


def test_rows_in_one_field_are_no_number(tmp_path):
    (tmp_path / "n.csv").write_text('feat\n"0.1, 0.5"\n"0.2, 0.5"\n')
    np.save(tmp_path / "e.npy", np.array([[0, 1], [1, 0]]))
    error = refusal(tmp_path / "e.npy", features=tmp_path / "n.csv")
    assert error.found == '"0.1, 0.5"' and "as columns, as lists in Parquet" in error.hint


def test_many_relations_may_be_features(tmp_path):
    lines = "".join(f"a{i % 7}\tr{i}\ta{i % 5}\n" for i in range(200))
    (tmp_path / "train.tsv").write_text("head\trelation\ttail\n" + lines)
    (tmp_path / "entities.tsv").write_text("id\n" + "".join(f"a{i}\n" for i in range(7)))
    start = "nodes: {n: {file: entities.tsv, id: id, features: ones}}\nedges:\n  - {file: train.tsv, "
    ends = "source: head, target: tail"
    (tmp_path / "graph.yaml").write_text(f"{start}{ends}, type: [n, '*', n], relation: relation}}\n")
    error = refusal(tmp_path)
    assert error.expected == "at most 128 relations" and "kind: category" in error.hint
    column = "features: [{column: relation, kind: category, at_most: 1000}]"
    (tmp_path / "graph.yaml").write_text(f"{start}{ends}, type: [n, to, n], {column}}}\n")
    assert imported(Path(tmp_path)).edge_table.feature_dim == 201


def test_temporal_data_says_how_it_is_written(tmp_path):
    data = TemporalData(
        src=torch.tensor([0, 1]), dst=torch.tensor([2, 3]), t=torch.tensor([5, 4]), msg=torch.tensor([[0.5], [1.5]])
    )
    torch.save(data.to_dict(), tmp_path / "t.pt")
    with pytest.raises(CohortError, match="found a TemporalData") as error:
        cohort.from_pyg(data, tmp_path / "out")
    assert error.value.hint == refusal(tmp_path / "t.pt").hint and "edge_time=data.t" in error.value.hint
    x, ends = torch.ones(data.num_nodes, 1), torch.stack([data.src, data.dst])
    folder = cohort.from_tensors(tmp_path / "out", x=x, edge_index=ends, edge_time=data.t, edge_attr=data.msg)
    stored = open_dataset(folder)
    assert edge_pairs(stored) == [(0, 2), (1, 3)] and stored.edge_times.tolist() == [5, 4]
    assert stored.edge_attr[:, 0].tolist() == [0.5, 1.5]


def test_graphs_of_other_packages_are_named(tmp_path):
    with pytest.raises(CohortError, match=r"found networkx.classes.graph.Graph\n.*from_networkx\(graph\)"):
        cohort.from_pyg(networkx.path_graph(3), tmp_path / "out")


def test_headers_of_jodie_are_named(tmp_path):
    header = "user_id,item_id,timestamp,state_label,comma_separated_list_of_features"
    (tmp_path / "wikipedia.csv").write_text(f"{header}\n0,0,0.0,0,-0.17,0.1\n1,1,6.0,0,-0.17,0.2\n")
    error = refusal(tmp_path / "wikipedia.csv", features="ones")
    assert "JODIEDataset" in error.hint and "5 fields" in error.expected
