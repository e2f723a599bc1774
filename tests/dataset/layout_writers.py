"""Small graphs, and writers of other libraries' layouts as those document them."""

from __future__ import annotations

import collections
import gzip
import json
import pickle
import shutil
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
import torch

from cohort_gnn.dataset import open as open_dataset


@dataclass
class Sample:
    """A graph with duplicates, self loops, nodes without edges and nodes without labels.

    Attributes:
        edge_index: int64 [2, E]; x: float32 [V, D]; y: int64 [V], -1 for none; splits: three int64 [any].
    """

    edge_index: np.ndarray
    x: np.ndarray
    y: np.ndarray
    splits: list[np.ndarray]

    @property
    def num_nodes(self) -> int:
        return len(self.x)


def sample(num_nodes: int = 60, num_edges: int = 400, dim: int = 5, classes: int = 4, seed: int = 0) -> Sample:
    rng = np.random.default_rng(seed)
    edge_index = rng.integers(0, num_nodes - 3, (2, num_edges))  # the last three nodes have no edges
    edge_index[:, -4:] = edge_index[:, :4]
    edge_index[1, :3] = edge_index[0, :3]
    y = rng.integers(0, classes, num_nodes)
    y[rng.choice(num_nodes, num_nodes // 4, replace=False)] = -1
    labelled = rng.permutation(np.flatnonzero(y >= 0))
    splits = [np.sort(ids) for ids in np.split(labelled[:-2], [20, 30])]
    x = rng.normal(size=(num_nodes, dim)).astype(np.float32)
    return Sample(edge_index, x, y, splits)


def write_safetensors(path: Path, tensors: dict[str, torch.Tensor | np.ndarray]) -> Path:
    """A file of safetensors as its library writes it."""
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, tensor in tensors.items():
        tensor = torch.as_tensor(tensor)
        kind = "BOOL" if tensor.dtype == torch.bool else str(tensor.dtype).removeprefix("torch.").upper()
        for word, letter in (("BFLOAT", "BF"), ("FLOAT", "F"), ("UINT", "U"), ("INT", "I"), ("COMPLEX", "C")):
            kind = kind.replace(word, letter)
        raw = (tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor).numpy().tobytes()
        header[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def assert_holds(data, graph: Sample, edges: np.ndarray | None = None) -> None:
    """The data set, or that of a folder, has the graph's edges (or these), rows, labels and splits."""
    data = open_dataset(data) if isinstance(data, Path) else data
    wanted = graph.edge_index if edges is None else edges
    order = np.lexsort((wanted[0], wanted[1]))
    target = np.repeat(np.arange(data.num_nodes), np.diff(data.indptr))
    np.testing.assert_array_equal(np.stack([data.indices, target]), wanted[:, order])
    np.testing.assert_array_equal(data.x, graph.x)
    np.testing.assert_array_equal(data.y, graph.y)
    for split, ids in zip(("train_ids", "val_ids", "test_ids"), graph.splits, strict=True):
        np.testing.assert_array_equal(getattr(data, split), ids)


def with_nan(y: np.ndarray) -> np.ndarray:
    """float32 [V, 1]: labels as OGB has them, NaN for none."""
    return np.where(y < 0, np.nan, y).astype(np.float32)[:, None]


def write_csv_gz(path: Path, rows: np.ndarray) -> None:
    """One row a line, without a header; NaN is empty, and in quotes where it stands alone, as pandas writes it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = np.asarray(rows).reshape(len(rows), -1)
    nan = "" if table.shape[1] > 1 else '""'
    texts = ([nan if value != value else repr(value) for value in row] for row in table.tolist())
    path.write_bytes(gzip.compress("".join(",".join(row) + "\n" for row in texts).encode()))


def write_ogb(root: Path, graph: Sample, binary: bool = False) -> Path:
    """raw/ and split/ of a node property data set."""
    raw = root / "raw"
    raw.mkdir(parents=True)
    if binary:
        np.savez(
            raw / "data.npz",
            edge_index=graph.edge_index,
            node_feat=graph.x,
            num_nodes_list=np.array([graph.num_nodes]),
            num_edges_list=np.array([graph.edge_index.shape[1]]),
        )
        np.savez_compressed(raw / "node-label.npz", node_label=with_nan(graph.y))
    else:
        write_csv_gz(raw / "edge.csv.gz", graph.edge_index.T)
        write_csv_gz(raw / "node-feat.csv.gz", graph.x.astype(np.float64))
        write_csv_gz(raw / "node-label.csv.gz", with_nan(graph.y))
        write_csv_gz(raw / "num-node-list.csv.gz", np.array([graph.num_nodes]))
        write_csv_gz(raw / "num-edge-list.csv.gz", np.array([graph.edge_index.shape[1]]))
    for name, ids in zip(("train", "valid", "test"), graph.splits, strict=True):
        write_csv_gz(root / "split" / "time" / f"{name}.csv.gz", ids)
    return root


def write_ogb_links(root: Path, graph: Sample, shared: bool) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """raw/ and split/ of a link property data set; its held-out links and their negatives, which all may share."""
    write_ogb(root, graph)
    (root / "raw" / "node-label.csv.gz").unlink()
    shutil.rmtree(root / "split")
    folder = root / "split" / "time"
    folder.mkdir(parents=True)
    random, links = np.random.default_rng(3), {}
    for name, count in (("train", 9), ("valid", 5), ("test", 7)):
        pairs = random.integers(graph.num_nodes, size=(count, 2))
        negatives = random.integers(graph.num_nodes, size=(20, 2) if shared else (count, 6))
        links[name] = pairs, negatives
        if shared:
            parts = {"edge": pairs, "edge_neg": torch.from_numpy(negatives)}
        else:
            parts = {"source_node": pairs[:, 0], "target_node": pairs[:, 1], "target_node_neg": negatives}
        torch.save(parts, folder / f"{name}.pt")
    return {"val": links["valid"], "test": links["test"]}


def planetoid_sample(seed: int = 0) -> Sample:
    """A graph that Planetoid's files can say: train nodes first, tests last, node 47 between them without a row."""
    graph = sample(num_nodes=50, seed=seed)
    rng = np.random.default_rng(seed)
    graph.x = (rng.random((50, 6)) < 0.3).astype(np.float32)
    graph.x[47] = 0
    graph.y = rng.integers(0, 3, 50)
    graph.y[47] = -1
    graph.edge_index = np.unique(graph.edge_index[:, graph.edge_index[0] != graph.edge_index[1]], axis=1)
    tests = np.array([*range(40, 47), 48, 49])
    graph.splits = [np.arange(12), np.arange(12, 40), tests]
    return graph


def write_planetoid(raw: Path, graph: Sample, protocol: int = 2) -> Path:
    """raw/ind.small.*: allx has the nodes before 40, tx those of test.index in its (random) order."""
    raw.mkdir(parents=True)
    order = np.random.default_rng(5).permutation(graph.splits[2])
    one_hot = np.where(graph.y[:, None] == np.arange(3), 1, 0).astype(np.int32)
    lists = collections.defaultdict(list)
    for src, dst in graph.edge_index.T.tolist():
        lists[src] += [dst, src, dst]  # duplicates and self loops, which PyG removes
    parts = {
        "x": scipy.sparse.csr_matrix(graph.x[:12]),
        "allx": scipy.sparse.csr_matrix(graph.x[:40]),
        "tx": scipy.sparse.csr_matrix(graph.x[order]),
        "y": one_hot[:12],
        "ally": one_hot[:40],
        "ty": one_hot[order],
        "graph": lists,
    }
    for part, value in parts.items():
        (raw / f"ind.small.{part}").write_bytes(pickle.dumps(value, protocol=protocol))
    (raw / "ind.small.test.index").write_text("".join(f"{node}\n" for node in order))
    return raw


def write_igb(root: Path, graph: Sample, bare: bool = False) -> Path:
    """processed/ of a homogeneous IGB data set; the largest sizes have bare numbers for arrays."""
    paper, cites = root / "processed" / "paper", root / "processed" / "paper__cites__paper"
    paper.mkdir(parents=True)
    cites.mkdir()
    np.save(cites / "edge_index.npy", graph.edge_index.T)
    labels = with_nan(graph.y)[:, 0]
    if bare:
        (paper / "node_feat.npy").write_bytes(graph.x.tobytes())
        (paper / "node_label_2K.npy").write_bytes(labels.tobytes())
    else:
        np.save(paper / "node_feat.npy", graph.x)
        np.save(paper / "node_label_19.npy", labels)
    return root


def write_legion(root: Path, graph: Sample) -> Path:
    """The binary files of Legion's data sets."""
    root.mkdir()
    order = np.lexsort((graph.edge_index[1], graph.edge_index[0]))
    src, dst = graph.edge_index[:, order]
    indptr = np.searchsorted(src, np.arange(graph.num_nodes + 1))
    indptr.astype(np.int64).tofile(root / "edge_src")
    dst.astype(np.int32).tofile(root / "edge_dst")
    graph.x.tofile(root / "features")
    graph.y.astype(np.int32).tofile(root / "labels")
    for name, ids in zip(("trainingset", "validationset", "testingset"), graph.splits, strict=True):
        ids.astype(np.int32).tofile(root / name)
    return root


METADATA = """
dataset_name: small
graph:
  nodes:
    - num: {num_nodes}
  edges:
    - format: {edge_format}
      path: edges/{edge_file}
feature_data:
  - {{domain: node, type: null, name: feat, format: numpy, path: data/feat.npy}}
  - {{domain: node, type: null, name: other, format: numpy, path: data/other.npy}}
tasks:
  - name: node_classification
    num_classes: 7
    train_set: [{train}]
    validation_set: [{val}]
    test_set: [{test}]
"""


def write_graphbolt(root: Path, graph: Sample, edge_format: str = "csv", array_format: str = "numpy") -> Path:
    """metadata.yaml and the files that it names; skips a test where nothing reads YAML."""
    pytest.importorskip("yaml")
    for folder in ("edges", "data", "sets"):
        (root / folder).mkdir(parents=True)
    edge_file = {"csv": "edges.csv", "numpy": "edges.npy"}[edge_format]
    if edge_format == "csv":
        np.savetxt(root / "edges" / edge_file, graph.edge_index.T, fmt="%d", delimiter=",")
    else:
        np.save(root / "edges" / edge_file, graph.edge_index)
    np.save(root / "data" / "feat.npy", graph.x)
    sets = {}
    for name, ids in zip(("train", "val", "test"), graph.splits, strict=True):
        items = []
        for part, array in (("seeds", ids), ("labels", graph.y[ids])):
            path = f"sets/{name}-{part}.{'npy' if array_format == 'numpy' else 'pt'}"
            _save(root / path, array, array_format)
            items.append(f"{{name: {part}, format: {array_format}, path: {path}}}")
        sets[name] = f"{{type: null, data: [{', '.join(items)}]}}"
    text = METADATA.format(num_nodes=graph.num_nodes, edge_format=edge_format, edge_file=edge_file, **sets)
    (root / "metadata.yaml").write_text(text)
    return root


def _save(path: Path, array: np.ndarray, form: str) -> None:
    if form == "numpy":
        np.save(path, array)
    else:
        torch.save(torch.from_numpy(array), path)
