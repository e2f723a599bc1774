"""Random data sets of the sizes of published typed graphs, or of a share of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import _native
from cohort_gnn.dataset.array_file import MemoryArray
from cohort_gnn.dataset.importing.convert import Conversion, write_graph
from cohort_gnn.dataset.importing.options import ConvertOptions
from cohort_gnn.dataset.layouts.graph import Graph, Nodes
from cohort_gnn.dataset.layouts.streams import EDGE_BYTES, EdgeChunk, Edges, Rows
from cohort_gnn.dataset.writer import GeneratedRows, demand_split
from cohort_gnn.spec.graph import EdgeType

LEAST_NODES = 8  # of a type, however small the share


@dataclass(frozen=True)
class Shape:
    """The sizes of a published graph.

    Attributes:
        nodes: by type; the first is the target.
        edges: by relation, in one direction.
        dim, dtype: of the features, which all types have here.
    """

    nodes: dict[str, int]
    edges: dict[EdgeType, int]
    dim: int
    dtype: str
    classes: int


SHAPES = {
    "mag": Shape(  # ogbn-mag
        {"paper": 736_389, "author": 1_134_649, "institution": 8_740, "field_of_study": 59_965},
        {
            ("author", "affiliated_with", "institution"): 1_043_998,
            ("author", "writes", "paper"): 7_145_660,
            ("paper", "cites", "paper"): 5_416_271,
            ("paper", "has_topic", "field_of_study"): 7_505_078,
        },
        128,
        "float32",
        349,
    ),
    "mag240m": Shape(
        {"paper": 121_751_666, "author": 122_383_112, "institution": 25_721},
        {
            ("author", "affiliated_with", "institution"): 44_592_586,
            ("author", "writes", "paper"): 386_022_720,
            ("paper", "cites", "paper"): 1_297_748_926,
        },
        768,
        "float16",
        153,
    ),
    "igbh": Shape(  # IGBH-full
        {"paper": 269_346_174, "author": 277_220_883, "institute": 26_918, "fos": 712_960},
        {
            ("paper", "cites", "paper"): 3_996_442_004,
            ("paper", "written_by", "author"): 716_761_549,
            ("author", "affiliated_to", "institute"): 48_521_486,
            ("paper", "topic", "fos"): 1_050_280_600,
        },
        1024,
        "float16",
        19,
    ),
}


def generate_shape(
    out: str | os.PathLike,
    *,
    kind: str,
    scale: float = 1.0,
    dim: int | None = None,
    dtype: str | None = None,
    classes: int | None = None,
    seed: int = 0,
    split: Sequence[float] = (0.6, 0.2, 0.2),
    overwrite: bool = False,
    write_rows: Callable[[Path, dict[Any, Any]], None] | None = None,
) -> None:
    """Writes a graph of the types and relations of a published one; FORMAT.md says what it draws.

    Args:
        kind: mag, mag240m or igbh.
        scale: the share of its nodes and edges, in (0, 1].
        dim, dtype, classes: None: those of the published graph.
        write_rows: as of `generate`.

    Raises:
        CohortError: an argument is out of range.
    """
    demand_split(split, seed)
    if not 0 < scale <= 1:
        raise CohortError("--scale", "a number in (0, 1]", str(scale))
    shape = SHAPES[kind]
    num_columns, dtype, classes = dim or shape.dim, dtype or shape.dtype, classes or shape.classes
    counts = {name: max(LEAST_NODES, round(scale * count)) for name, count in shape.nodes.items()}
    tables = {
        name: _rows(counts[name], num_columns, dtype, classes, seed, number) for number, name in enumerate(shape.nodes)
    }
    target = next(iter(shape.nodes))
    graph = Graph(
        name=Path(out).name,
        place="generated",
        nodes={name: Nodes(counts[name], _raw(rows)) for name, rows in tables.items()},
        edges={
            relation: _edges(relation, counts, round(scale * count), [seed, number])
            for number, (relation, count) in enumerate(shape.edges.items())
        },
        target=target,
        labels=MemoryArray("labels", tables[target].labels),
        num_classes=classes,
        reverse=True,
    )

    class ByWriter(Conversion):
        def write_rows(self, rows: Rows, file: str, num_nodes: int | None, what: str) -> list[int]:
            return [num_nodes or 0, num_columns]

        def run(self) -> None:
            super().run()
            assert write_rows is not None
            write_rows(self.folder, {name: rows for name, rows in tables.items()})

    options = ConvertOptions(split=split, seed=seed, overwrite=overwrite)
    write_graph(graph, out, options, kind=Conversion if write_rows is None else ByWriter)


def _rows(count: int, dim: int, dtype: str, classes: int, seed: int, number: int) -> GeneratedRows:
    """The rows of the node type of this number, each around the centre of its node's class."""
    options = _native.GenerateOptions(
        kind="powerlaw",
        nodes=count,
        edges=0,
        dim=dim,
        dtype=dtype,
        classes=min(classes, count),
        seed=seed + number,
        split=[1.0, 0.0, 0.0],
        undirected=False,
        edge_weights=False,
    )
    labels = np.random.Generator(np.random.Philox([seed, number])).integers(0, min(classes, count), count)
    return GeneratedRows(_native.FeatureGenerator(options), labels, dtype)


def _raw(rows: GeneratedRows) -> Rows:
    def chunks(block_bytes: int) -> Iterator[np.ndarray]:
        step = max(1, block_bytes // rows.row_bytes)
        for first in range(0, rows.num_rows, step):
            yield rows.slice(first, min(first + step, rows.num_rows)).view(rows.dtype)

    return Rows("features", rows.dtype, chunks)


def _edges(relation: EdgeType, counts: dict[str, int], num_edges: int, key: list[int]) -> Edges:
    """Both ends as of `powerlaw`: floor(V u^2) of V nodes that are renamed at random."""
    endpoint_types = relation[0], relation[2]

    def chunks(block_bytes: int) -> Iterator[EdgeChunk]:
        draws = [np.random.Generator(np.random.Philox([*key, 2, end])) for end in range(2)]
        names = [draw.permutation(counts[end]) for draw, end in zip(draws, endpoint_types, strict=True)]
        step = max(1, block_bytes // EDGE_BYTES)
        for first in range(0, num_edges, step):
            count = min(step, num_edges - first)
            pair = [
                name[(len(name) * draw.random(count) ** 2).astype(np.int64)]
                for draw, name in zip(draws, names, strict=True)
            ]
            yield pair[0], pair[1], (first + count) / num_edges

    return Edges(" ".join(relation), chunks)
