"""IGB's homogeneous data sets: processed/paper/ with rows and labels, processed/paper__cites__paper/ with edges.

The two largest sizes keep node_feat.npy and the labels as bare float32 numbers, without the header of a .npy file.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cohort.base.errors import CohortError
from cohort.dataset import arrays
from cohort.dataset.array_file import ArrayFile, is_npy, open_npy, open_raw
from cohort.dataset.layouts.graph import Graph, Labels, edges_of_pairs, rows_of_file

DIM = 1024
LABEL_FILES = ("node_label_19.npy", "node_label_2K.npy")
TRAIN, VAL = 0.6, 0.2  # of the labelled nodes, in their order, as IGB's loader cuts them


def find_igb(source: Path) -> Path | None:
    """The folder that has paper__cites__paper, when there is one."""
    return next(
        (folder for folder in (source, source / "processed") if (folder / "paper__cites__paper").is_dir()), None
    )


def read_igb(source: Path) -> Graph:
    """The graph of a folder such as igb/tiny (or of its processed/)."""
    folder = find_igb(source)
    if folder is None:
        raise CohortError(str(source), "a folder with processed/paper__cites__paper", "none", "see FORMAT.md")
    features = _open(folder / "paper" / "node_feat.npy", DIM)
    found = [folder / "paper" / name for name in LABEL_FILES if (folder / "paper" / name).exists()]
    if not found:
        expected = " or ".join(LABEL_FILES)
        raise CohortError(str(folder / "paper"), expected, "neither", "download them again, or pass --labels FILE")
    num_nodes = len(features)

    def labels() -> np.ndarray:
        return _labels(found[0], num_nodes)

    return Graph(
        name=f"igb-{(source.parent if source.name == 'processed' else source).resolve().name}",
        edges=edges_of_pairs(open_npy(folder / "paper__cites__paper" / "edge_index.npy")),
        features=rows_of_file(features),
        labels=Labels(str(found[0]), labels),
        splits=lambda: _splits(labels()),
        num_nodes=num_nodes,
        notes=[f"labels of {found[0].name}", "IGB's loader replaces self loops: --self-loops add does the same"],
    )


def _open(path: Path, dim: int | None) -> ArrayFile:
    return open_npy(path) if is_npy(path) else open_raw(path, "float32", dim)


def _labels(path: Path, num_nodes: int) -> np.ndarray:
    """int64 [V]; nodes after the last label of the file have none."""
    found = _open(path, None).read().reshape(-1)
    if len(found) > num_nodes:
        raise CohortError(str(path), f"at most {num_nodes} labels, one per row", f"{len(found)}")
    out = np.full(num_nodes, -1, dtype=np.int64)
    out[: len(found)] = arrays.class_labels(str(path), found, len(found))
    return out


def _splits(labels: np.ndarray) -> list[np.ndarray]:
    labelled = np.flatnonzero(labels >= 0)
    num_train, num_val = int(len(labelled) * TRAIN), int(len(labelled) * VAL)
    return np.split(labelled, [num_train, num_train + num_val])
