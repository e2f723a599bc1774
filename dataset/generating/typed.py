"""A random data set of papers, authors and fields whose classes need two relations."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset.array_file import MemoryArray
from cohort_gnn.dataset.importing.convert import write_graph
from cohort_gnn.dataset.importing.options import ConvertOptions
from cohort_gnn.dataset.layouts.graph import Graph, Nodes
from cohort_gnn.dataset.layouts.streams import Edges, Rows
from cohort_gnn.dataset.writer import demand_split
from cohort_gnn.spec.types import checked_arguments

PAPER_NOISE, OTHER_NOISE = 4.0, 0.25  # of each feature, beside signatures of length 1
STRAY = 0.1  # the share of edges whose author or field is any
NODES_PER_SIDE = 12  # one node of so many is an author, and one a field


@checked_arguments
def generate_typed(
    out: str | os.PathLike,
    *,
    nodes: int,
    edges: int,
    dim: int = 64,
    dtype: str = "float32",
    classes: int = 2,
    seed: int = 0,
    split: Sequence[float] = (0.6, 0.2, 0.2),
    all_features: bool = False,
    overwrite: bool = False,
) -> None:
    """Writes papers with authors and fields; FORMAT.md says what it draws. The same seed gives the same files.

    Args:
        nodes: of all three types.
        edges: drawn, half of them from authors to papers, half from papers to fields; each is also stored reversed.
        dtype: float32 or float16.
        classes: of the papers.
        all_features: authors and fields have features, too.
    """
    demand_split(split, seed)
    num_groups = 2 * classes + 1
    side = nodes // NODES_PER_SIDE
    papers = nodes - 2 * side
    _demand_sizes(nodes, edges, dim, dtype, classes, num_groups, papers)
    draw = np.random.Generator(np.random.Philox(seed))
    author_group, field_group, labels = _papers(draw, papers, classes)
    side_groups = np.arange(side) % num_groups  # the groups of authors and of fields
    writes = _edges(draw, papers, edges - edges // 2, author_group, side, num_groups)
    has = _edges(draw, papers, edges // 2, field_group, side, num_groups)
    signatures = draw.standard_normal((num_groups, dim), dtype=np.float32) / np.float32(np.sqrt(dim))

    def nodes_of(signal: np.ndarray, noise: float) -> Nodes:
        x = signal + np.float32(noise) * draw.standard_normal(signal.shape, dtype=np.float32)
        return Nodes(len(x), Rows.from_matrix("features", x.astype(dtype)))

    paper = nodes_of(signatures[author_group] + signatures[field_group], PAPER_NOISE)
    # One table for authors and fields: without types nothing tells them apart.
    other = nodes_of(signatures[side_groups], OTHER_NOISE) if all_features else Nodes(side)
    graph = Graph(
        name=Path(out).name,
        place="generated",
        nodes={"paper": paper, "author": other, "field": other},
        edges={
            ("author", "writes", "paper"): Edges.in_memory("writes", *writes),
            ("paper", "has", "field"): Edges.in_memory("has", *has[::-1]),
        },
        target="paper",
        labels=MemoryArray("labels", labels),
        num_classes=classes,
        reverse=True,
    )
    write_graph(graph, out, ConvertOptions(split=split, seed=seed, overwrite=overwrite))


def _demand_sizes(nodes: int, edges: int, dim: int, dtype: str, classes: int, num_groups: int, papers: int) -> None:
    least = NODES_PER_SIDE * num_groups
    if classes < 2:
        raise CohortError("--classes", "at least 2 for --kind typed", str(classes))
    if not least <= nodes < 2**31:
        raise CohortError("--nodes", f"an integer in [{least}, 2^31) for {classes} classes of --kind typed", str(nodes))
    if edges < 2 * papers:
        expected = f"at least {2 * papers}, an author and a field for each of {papers} papers"
        raise CohortError("--edges", expected, str(edges))
    if dim < 1:
        raise CohortError("--dim", "at least 1", str(dim))
    if dtype not in ("float32", "float16"):
        raise CohortError("--dtype", "float32 or float16 for --kind typed", dtype)


def _papers(draw: np.random.Generator, papers: int, classes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of each paper: the group of its authors, another group, of its fields, and the class, int64 [papers] each.

    The class is a range of the difference between the groups. Given one group, all classes are equally likely; given
    both without their order, class c is as likely as class classes - 1 - c.
    """
    num_groups = 2 * classes + 1
    difference = draw.integers(1, num_groups, papers)
    author_group = draw.integers(0, num_groups, papers)
    return author_group, (author_group - difference) % num_groups, (difference - 1) // 2


def _edges(
    draw: np.random.Generator, papers: int, count: int, group: np.ndarray, side: int, num_groups: int
) -> tuple[np.ndarray, np.ndarray]:
    """An author or field of the paper's group, or a stray one, and the paper: int64 [count] each."""
    paper = np.concatenate([np.arange(papers), draw.integers(0, papers, count - papers)])
    members = (side - group[paper] + num_groups - 1) // num_groups  # nodes i < side with i % num_groups == group
    other = (draw.random(count) * members).astype(np.int64) * num_groups + group[paper]
    stray = draw.random(count) < STRAY
    other[stray] = draw.integers(0, side, int(stray.sum()))
    return other, paper
