"""Tensors of safetensors and torch.save where a .npy file may be, and files of them that are refused."""

from __future__ import annotations

import filecmp
import io
import json
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from import_helpers import PICKLE, Harmful, edge_pairs, imported, refusal
from layout_writers import sample, write_safetensors
from torch_geometric.data import Data

from cohort_gnn.dataset import open as open_dataset

KINDS = ("safetensors", "pt")
RNG = np.random.default_rng(5)
GRAPH = sample()
V, E = GRAPH.num_nodes, GRAPH.edge_index.shape[1]
TASKS = {
    "labels": GRAPH.y,
    "numbers": RNG.normal(size=V),
    "weights": RNG.random(E, dtype=np.float32),
    "times": RNG.permutation(E),
    "edge_rows": RNG.normal(size=(E, 3)).astype(np.float32),
    "src": GRAPH.edge_index[0],
    "dst": GRAPH.edge_index[1],
    "pairs": np.ascontiguousarray(GRAPH.edge_index.T),
    "edge_index": GRAPH.edge_index,
    "x": GRAPH.x,
    "train": np.isin(np.arange(V), GRAPH.splits[0]),
    "val": np.isin(np.arange(V), GRAPH.splits[1]),
    "test": GRAPH.splits[2],
    "ids": np.arange(V),
}


def write(path: Path, tensors) -> Path:
    """A file of tensors, or of one, of the kind that its name says."""
    if path.suffix == ".safetensors":
        return write_safetensors(path, tensors if isinstance(tensors, dict) else {"only": tensors})
    torch.save(tensors, path)
    return path


def arrays_of(folder: Path) -> dict[str, Path]:
    return {path.name: path for path in sorted(folder.glob("*.npy"))}


def assert_same(data, expected) -> None:
    found, wanted = arrays_of(data.path), arrays_of(expected.path)
    assert found.keys() == wanted.keys() and wanted
    for name in wanted:
        assert filecmp.cmp(found[name], wanted[name], shallow=False), name


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def place(tmp_path, kind):
    """place(name): a tensor of a file that has all; and each is a .npy file, too."""
    for name, array in TASKS.items():
        np.save(tmp_path / f"{name}.npy", array)
    path = write(tmp_path / f"all.{kind}", {name: torch.from_numpy(array) for name, array in TASKS.items()})
    return lambda name: Path(f"{path}:{name}")


OPTIONS = {
    "labels": {"labels": "labels"},
    "splits": {"labels": "labels", "splits": ["train", "val", "test"]},
    "regression": {"labels": "numbers", "task": "regression"},
    "weights": {"edge_weights": "weights"},
    "times": {"edge_times": "times"},
    "edge features": {"edge_features": "edge_rows"},
    "ids": {"node_ids": "ids"},
    "destinations": {"source": "src", "destinations": "dst"},
    "pairs": {"source": "pairs"},
}


@pytest.mark.parametrize("case", OPTIONS)
def test_tensors_are_taken_where_npy_files_are(tmp_path, place, case):
    options = {"source": "edge_index", "features": "x"} | OPTIONS[case]

    def of(where):
        named = {key: [where(each) for each in name] if isinstance(name, list) else where(name)
                 for key, name in options.items() if key != "task"}  # fmt: skip
        more = {"task": options["task"]} if "task" in options else {}
        return imported(named.pop("source"), tmp_path / where("x").suffix, **named, **more)

    assert_same(of(place), of(lambda name: tmp_path / f"{name}.npy"))


@pytest.mark.parametrize("with_files", [False, True])
def test_graph_yaml_names_tensors(tmp_path, place, with_files):
    def described(where):
        def file(name):
            return {"file": where(name)} if with_files else where(name)

        splits = [file(name) for name in ("train", "val", "test")]
        nodes = {"a": {"features": file("x"), "label": file("labels"), "split": splits}, "b": {"count": V}}
        edges = [
            {"type": ["a", "to", "b"], "file": where("edge_index"), "weight": file("weights")},
            {"type": ["b", "of", "a"], "file": where("pairs"), "time": file("times"), "features": file("edge_rows")},
        ]
        (tmp_path / "graph.yaml").write_text(yaml.safe_dump({"nodes": nodes, "edges": edges}))
        return imported(tmp_path / "graph.yaml")

    assert_same(described(lambda name: place(name).name), described(lambda name: f"{name}.npy"))


@pytest.mark.parametrize("name", ["only", None])
def test_the_only_tensor_of_a_file_needs_no_name(tmp_path, kind, name):
    edges = torch.from_numpy(GRAPH.edge_index)
    path = write(tmp_path / f"edges.{kind}", edges if name is None else {name: edges})
    features = write(tmp_path / f"x.{kind}", {"weight": torch.from_numpy(GRAPH.x)})
    if kind == "pt" and name is not None:
        assert f"{path}:NAME" in refusal(path, features=features).hint  # a dict of a Data without edge_index
        path = Path(f"{path}:{name}")
    np.save(tmp_path / "edges.npy", GRAPH.edge_index)
    assert_same(imported(path, features=features), imported(tmp_path / "edges.npy", features=features))


@pytest.mark.parametrize("form", ["transposed", "old", "data", "parameter"])
def test_other_forms_of_pt_files_are_read(tmp_path, form):
    edges, path, name = torch.from_numpy(GRAPH.edge_index), tmp_path / "e.pt", ""
    if form == "transposed":
        torch.save(edges.t().contiguous().t(), path)
    elif form == "old":
        torch.save(edges, path, _use_new_zipfile_serialization=False)
    elif form == "data":
        torch.save(Data(x=torch.ones(V, 1), edge_index=edges), path)
        name = ":edge_index"
    else:
        torch.save({"module.edges": torch.nn.Parameter(edges, requires_grad=False), "step": 3}, path)
        name = ":module.edges"
    assert sorted(edge_pairs(imported(Path(f"{path}{name}"), features="ones"))) == sorted(map(tuple, edges.T.tolist()))


def test_tensors_are_read_without_pyg(tmp_path, monkeypatch):
    monkeypatch.setattr("cohort_gnn.dataset.layouts.torch_files._data_classes", lambda: pytest.fail("PyG is imported"))
    path = write(tmp_path / "all.pt", {"edges": torch.from_numpy(GRAPH.edge_index), "x": torch.from_numpy(GRAPH.x)})
    assert np.array_equal(imported(Path(f"{path}:edges"), features=Path(f"{path}:x")).x, GRAPH.x)


DTYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "uint32", "uint64", "float16", "float32", "float64")


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_of_each_type_are_those_of_npy(tmp_path, kind, dtype):
    rows = torch.from_numpy(RNG.integers(0, 2 if dtype == "bool" else 100, (V, 3)).astype(dtype))
    np.save(tmp_path / "x.npy", rows.numpy())
    np.save(tmp_path / "e.npy", GRAPH.edge_index)
    found = imported(tmp_path / "e.npy", features=write(tmp_path / f"x.{kind}", rows))
    assert_same(found, imported(tmp_path / "e.npy", features=tmp_path / "x.npy"))
    assert np.array_equal(found.x, rows.numpy())


def test_bfloat16_keeps_its_bits_and_is_a_number_elsewhere(tmp_path, kind):
    rows, weights = torch.randn(V, 3).bfloat16(), torch.rand(E).bfloat16()
    path = write(tmp_path / f"all.{kind}", {"x": rows, "w": weights, "y": weights[:V].contiguous()})
    np.save(tmp_path / "e.npy", GRAPH.edge_index)
    options = {"features": Path(f"{path}:x"), "edge_weights": Path(f"{path}:w"), "labels": Path(f"{path}:y")}
    data = imported(tmp_path / "e.npy", task="regression", **options)
    assert data.feature_dtype == "bfloat16" and np.array_equal(data.x_float32(), rows.float().numpy())
    assert np.array_equal(np.sort(data.edge_weights), np.sort(weights.float().numpy()))
    assert np.array_equal(data.y, weights[:V].float().numpy())


def test_a_large_file_is_read_in_pieces(tmp_path, kind):
    rows = torch.randn(70_000, 40)
    path = write(tmp_path / f"x.{kind}", rows)
    np.save(tmp_path / "e.npy", GRAPH.edge_index)
    data = imported(tmp_path / "e.npy", features=path, memory=16_000_000)
    assert np.array_equal(data.x, rows.numpy())


def test_a_file_with_a_colon_in_its_name_is_no_tensor(tmp_path, kind):
    np.save(tmp_path / "e.npy", GRAPH.edge_index)
    path = write(tmp_path / f"a.{kind}:b.{kind}", torch.from_numpy(GRAPH.x))
    assert np.array_equal(imported(tmp_path / "e.npy", features=path).x, GRAPH.x)


# --- names and types that are refused ---------------------------------------------------------------------------------

ODD = {
    "float8": (lambda: torch.ones(V, 2).to(torch.float8_e4m3fn), "float", "tensor.float()"),
    "complex": (lambda: torch.ones(V, 2, dtype=torch.complex64), "", "view_as_real"),
    "scalar": (lambda: torch.tensor(3.0), "without a shape", "reshape"),
    "uint16": (lambda: torch.ones(V, 2, dtype=torch.uint16), "dtype uint16", "--feature-dtype"),
    "line": (lambda: torch.ones(V), f"shape [{V}]", "array[:, None]"),
}
ODD_OF_PT = {
    "sparse": (lambda: torch.eye(V).to_sparse(), "a tensor of layout torch.sparse_coo", "to_dense"),
    "expanded": (lambda: torch.ones(1, 2).expand(1 << 40, 2), "of 8 bytes", "contiguous"),
    "meta": (lambda: torch.empty(V, 2, device="meta"), "on meta", "cpu"),
}


@pytest.mark.parametrize(
    ("kind", "case"), [*((kind, case) for kind in KINDS for case in ODD), *(("pt", c) for c in ODD_OF_PT)]
)
def test_tensors_that_a_data_set_does_not_hold_are_refused(tmp_path, kind, case):
    make, actual, cure = (ODD | ODD_OF_PT)[case]
    if kind == "safetensors" and case == "float8":
        actual, path = "F8_E4M3", tmp_path / "x.safetensors"
        path.write_bytes(of_header({"x": entry("F8_E4M3", [V, 2], 0, 2 * V)}, bytes(2 * V)))
    else:
        path = write(tmp_path / f"x.{kind}", make())
    np.save(tmp_path / "e.npy", GRAPH.edge_index)
    error = refusal(tmp_path / "e.npy", features=path)
    assert error.place.startswith(str(path)) and actual in error.found and cure in error.hint


def test_one_of_several_tensors_has_to_be_named(tmp_path, kind):
    path = write(tmp_path / f"all.{kind}", {name: torch.ones(V, 2) for name in ("x", "node_rows")})
    np.save(tmp_path / "e.npy", GRAPH.edge_index)
    error = refusal(tmp_path / "e.npy", features=path)
    assert error.place == str(path) and error.found == "2: x, node_rows" and f"{path}:x" in error.hint
    assert np.array_equal(imported(tmp_path / "e.npy", features=Path(f"{path}:x")).x, np.ones((V, 2)))
    error = refusal(tmp_path / "e.npy", features=Path(f"{path}:node_row"))
    assert error.expected == "a tensor node_row" and error.hint == "did you mean node_rows?"


@pytest.mark.parametrize("name", ["no.pt", "no.safetensors", "no.safetensors:x"])
def test_a_file_that_is_not_there_is_refused(tmp_path, name):
    np.save(tmp_path / "e.npy", GRAPH.edge_index)
    assert refusal(tmp_path / "e.npy", features=tmp_path / name).found == "no such file"
    assert "no such file" in refusal(tmp_path / name, features="ones").found


@pytest.mark.parametrize("kind", ["npy", *KINDS])
def test_bools_of_other_bytes_are_refused(tmp_path, kind):
    train, path = torch.ones(V, dtype=torch.bool), tmp_path / f"mask.{kind}"
    np.save(path, train.numpy()) if kind == "npy" else write(path, train)
    at = path.read_bytes().index(bytes([1]) * V)
    with open(path, "r+b") as file:
        file.seek(at + 3)
        file.write(b"\x02")
    np.save(tmp_path / "e.npy", GRAPH.edge_index)
    np.save(tmp_path / "y.npy", GRAPH.y)
    error = refusal(tmp_path / "e.npy", features="ones", nodes=V, labels=tmp_path / "y.npy", splits=[path] * 3)
    assert error.place.startswith(str(path)) and error.found == "a byte of 2"


# --- damaged files ----------------------------------------------------------------------------------------------------


def entry(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def of_header(header, data: bytes = b"", length: int | None = None) -> bytes:
    """A file of safetensors with this header, an object or bytes."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


ONE = entry("F32", [V, 2], 0, 8 * V)
NAMED = json.dumps(ONE).encode()
SAFETENSORS = {
    "empty": (b"", "a whole file", "0 bytes"),
    "short": (b"\x10\0\0", "a whole file", "3 bytes"),
    "long header": (of_header({"x": ONE}, bytes(8 * V), 1 << 60), "a whole file", f"a header of {1 << 60} bytes"),
    "no JSON": (of_header(b'{"x": ', bytes(8)), "in JSON", "damaged"),
    "blank before": (of_header(b' {"x": ' + NAMED + b"}", bytes(8 * V)), "in JSON", "damaged"),
    "no UTF-8": (of_header(b'{"\xff": ' + NAMED + b"}", bytes(8 * V)), "in JSON", "damaged"),
    "deep": (of_header(b'{"x": ' + b"[" * 100_000), "in JSON", "damaged"),
    "list": (of_header(b"[]"), "in JSON", "damaged"),
    "twice": (of_header(b'{"x": ' + NAMED + b', "x": ' + NAMED + b"}", bytes(8 * V)), "each name once", "x again"),
    "no dtype": (of_header({"x": {"shape": [1], "data_offsets": [0, 4]}}, bytes(4)), "the key dtype", "none"),
    "more keys": (of_header({"x": ONE | {"stride": 1}}, bytes(8 * V)), "keys that are known", "stride"),
    "text": (of_header({"x": "F32"}), "keys with values", "a text"),
    "float": (of_header({"x": entry("F32", [2.0], 0, 8)}, bytes(8)), "an integer", "a number"),
    "bool": (of_header({"x": entry("U8", [True], 0, 1)}, bytes(1)), "an integer", "true or false"),
    "negative": (of_header({"x": entry("F32", [-1, -2], 0, 8)}, bytes(8)), "at least 0", ""),
    "overflow": (of_header({"x": entry("F32", [1 << 62, 4], 0, 0)}), "bytes for F32", "[0, 0]"),
    "large": (of_header({"x": entry("F32", [1 << 64], 0, 0)}), "at most", ""),
    "dtype": (of_header({"x": entry("F128", [1], 0, 16)}, bytes(16)), "a dtype of safetensors", "F128"),
    "size": (of_header({"x": entry("F32", [V, 3], 0, 8 * V)}, bytes(8 * V)), f"bytes for F32 of shape [{V}, 3]", ""),
    "backwards": (of_header({"x": entry("F32", [V, 2], 8 * V, 0)}, bytes(8 * V)), "bytes for F32", f"[{8 * V}, 0]"),
    "hole": (of_header({"x": entry("F32", [V, 2], 8, 8 * V + 8)}, bytes(8 * V + 8)), "begin at 0", "[8, "),
    "overlap": (
        of_header({"x": ONE, "y": entry("F32", [V, 2], 8, 8 * V + 8)}, bytes(8 * V + 8)),
        f"begin at {8 * V}",
        "[8, ",
    ),
    "cut off": (of_header({"x": ONE}, bytes(8 * V - 1)), f"{8 * V} bytes behind", str(8 * V - 1)),
    "longer": (of_header({"x": ONE}, bytes(8 * V + 1)), f"{8 * V} bytes behind", str(8 * V + 1)),
    "no tensor": (of_header({"__metadata__": {"format": "pt"}}), "one tensor", "no tensors"),
}


@pytest.mark.parametrize("case", SAFETENSORS)
def test_damaged_safetensors_are_refused(tmp_path, case):
    content, expected, actual = SAFETENSORS[case]
    path = tmp_path / "x.safetensors"
    path.write_bytes(content)
    np.save(tmp_path / "e.npy", GRAPH.edge_index)
    error = refusal(tmp_path / "e.npy", features=path)
    assert str(path) in error.place and expected in error.expected and actual in error.found and error.hint


def test_a_header_above_the_limit_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("cohort_gnn.dataset.layouts.safetensors.MAX_HEADER_BYTES", 8)
    path = write_safetensors(tmp_path / "x.safetensors", {"x": GRAPH.x})
    np.save(tmp_path / "e.npy", GRAPH.edge_index)
    assert refusal(tmp_path / "e.npy", features=path).expected == "a header of at most 8 bytes"


def harmful_zip() -> bytes:
    """A file of torch.save whose pickle would run a program."""
    torch.save({"x": Harmful(), "y": torch.ones(3)}, file := io.BytesIO())
    return file.getvalue()


def whole() -> bytes:
    torch.save(torch.from_numpy(GRAPH.x), file := io.BytesIO())
    return file.getvalue()


def compressed() -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(whole())) as old, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name) * 9)
    return packed.getvalue()


PT = {
    "empty": (lambda: b"", "only tensors", ""),
    "pickle": (lambda: PICKLE, "only tensors", ""),
    "harmful": (harmful_zip, "only tensors", "exec"),
    "cut off": (lambda: whole()[:-100], "only tensors", ""),
    "compressed": (compressed, "only tensors", "a compressed member"),
    "text": (lambda: b"0.5,1.5\n" * 9, "only tensors", "begins with"),
}


@pytest.mark.parametrize("name", ["", ":x"])
@pytest.mark.parametrize("case", PT)
def test_damaged_and_harmful_pt_files_are_refused(tmp_path, case, name):
    make, expected, actual = PT[case]
    (tmp_path / "x.pt").write_bytes(make())
    np.save(tmp_path / "e.npy", GRAPH.edge_index)
    error = refusal(tmp_path / "e.npy", features=Path(f"{tmp_path / 'x.pt'}{name}"))
    assert str(tmp_path / "x.pt") in error.place and expected in error.expected and actual in error.found and error.hint


def test_a_pt_file_of_other_things_has_no_tensors(tmp_path):
    np.save(tmp_path / "e.npy", GRAPH.edge_index)
    for content, actual in (([torch.ones(2)], "list"), ({"n": 3}, "no tensors"), (3, "int")):
        torch.save(content, tmp_path / "x.pt")
        assert actual in refusal(tmp_path / "e.npy", features=tmp_path / "x.pt").found
    torch.save(torch.ones(V, 2), tmp_path / "x.pt")
    assert "no name" in refusal(tmp_path / "e.npy", features=Path(f"{tmp_path}/x.pt:x")).found
    assert open_dataset(imported(tmp_path / "e.npy", features=tmp_path / "x.pt").path).feature_dim == 2
