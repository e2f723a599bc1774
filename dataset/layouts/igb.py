"""IGB's data sets: processed/TYPE/ with rows and labels, processed/SOURCE__NAME__TARGET/ with edges.

The two largest sizes keep node_feat.npy and the labels as bare float32 numbers, without the header of a .npy file.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import arrays
from cohort_gnn.dataset.array_file import ArrayFile, is_npy, open_npy, open_raw
from cohort_gnn.dataset.layouts.graph import Graph, Nodes, by_relation, relation_of
from cohort_gnn.dataset.layouts.streams import Edges, Labels, Rows

DIM = 1024
TARGET, CITES = "paper", "paper__cites__paper"  # what the homogeneous data sets have
LABEL_FILES = ("node_label_19.npy", "node_label_2K.npy")
TRAIN, VAL = 0.6, 0.2  # of the labelled nodes, in their order, as IGB's loader cuts them


def find_igb(source: Path) -> Path | None:
    """The folder that has paper__cites__paper, when there is one."""
    return next((folder for folder in (source, source / "processed") if (folder / CITES).is_dir()), None)


def is_igbh(source: Path) -> bool:
    """Whether there are relations besides paper__cites__paper."""
    folder = find_igb(source)
    return folder is not None and len(_relations(folder)) > 1


def _relations(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*__*__*") if path.is_dir())


def read_igb(source: Path, has_types: bool = False) -> Graph:
    """The papers of a folder such as igb/tiny (or of its processed/), or all of its types."""
    folder = find_igb(source)
    if folder is None:
        raise CohortError(str(source), "a folder with processed/paper__cites__paper", "none", "see FORMAT.md")
    names = _relations(folder) if has_types else [CITES]
    paths = {relation_of(str(folder / name), name, "__"): folder / name for name in names}
    types = sorted({end for relation in paths for end in (relation[0], relation[2])})
    features = {type_: _open(folder / type_ / "node_feat.npy", DIM) for type_ in types}
    labels, missing = [folder / TARGET / name for name in LABEL_FILES if (folder / TARGET / name).exists()], {}
    if not labels:
        hint = "download them again, or pass --labels FILE"
        missing["labels"] = CohortError(str(folder / TARGET), " or ".join(LABEL_FILES), "neither", hint)
    num_nodes = len(features[TARGET])

    def read_labels() -> np.ndarray:
        return _labels(labels[0], num_nodes)

    edges = ((relation, Edges.from_pairs(open_npy(path / "edge_index.npy"))) for relation, path in paths.items())
    return Graph(
        name=f"igb-{(source.parent if source.name == 'processed' else source).resolve().name}",
        place=str(folder),
        nodes={type_: Nodes(len(rows), Rows.from_file(rows)) for type_, rows in features.items()},
        edges=by_relation(str(folder), edges),
        target=TARGET,
        labels=Labels(str(labels[0]), read_labels) if labels else None,
        splits=(lambda: _splits(read_labels())) if labels else None,
        missing=missing,
        notes=[
            *(f"labels of {path.name}" for path in labels[:1]),
            "IGB's loader replaces self loops: --self-loops add does the same",
        ],
    )


def _open(path: Path, dim: int | None) -> ArrayFile:
    return open_npy(path) if is_npy(path) else open_raw(path, "float32", dim)


def _labels(path: Path, num_nodes: int) -> np.ndarray:
    """int64 [V]; nodes after the last label of the file have none."""
    labels = _open(path, None).read().reshape(-1)
    if len(labels) > num_nodes:
        raise CohortError(str(path), f"at most {num_nodes} labels, one per row", f"{len(labels)}")
    out = np.full(num_nodes, -1, dtype=np.int64)
    out[: len(labels)] = arrays.class_labels(str(path), labels, len(labels))
    return out


def _splits(labels: np.ndarray) -> list[np.ndarray]:
    labelled = np.flatnonzero(labels >= 0)
    num_train, num_val = int(len(labelled) * TRAIN), int(len(labelled) * VAL)
    return np.split(labelled, [num_train, num_train + num_val])
