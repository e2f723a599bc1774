"""Predicts again only what a change of the graph reaches, and takes the other rows from an earlier predict."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from cohort_gnn.dataset import StoredGraph
from cohort_gnn.nn.row_tiles import row_tiles
from cohort_gnn.trainer.predict.copies import Copies
from cohort_gnn.trainer.predict.kept_layers import Before, layer_file
from cohort_gnn.trainer.predict.layerwise import KeptIn, Layerwise, RowsByType, keep_scores
from cohort_gnn.trainer.predict.marks import Marks, mark_targets
from cohort_gnn.trainer.predict.node_rows import ArrayRows, UpdatedRows, new_rows
from cohort_gnn.trainer.predict.row_digests import Changes

MOST_REACHED = 0.8  # of all work; of SAGE and GCN, 0.85 and 0.95 take as long as all nodes in their order


@dataclass(frozen=True)
class Reached:
    """The nodes whose rows a change may alter.

    Attributes:
        nodes: of each layer, by the node types that it gives rows, int64 [n] ascending.
        work: edges and nodes that the layers go through for them.
    """

    nodes: list[dict[str, Tensor]]
    work: int


def reached_by(changes: Changes, layers: Layerwise, data: StoredGraph, marks: Marks | None = None) -> Reached | None:
    """None: so many that computing all takes no longer.

    Args:
        marks: a part of it that is there already.

    A layer's row is another if the node is new, its list of in-neighbours has changed, or the layer reads a row that
    has: the node's own or that of an in-neighbour. Layers that divide by the degrees of in-neighbours (GCN) read
    another row where these have other lists.
    """
    new = {name: np.zeros(table.num_nodes, bool) for name, table in data.node_types.items()}
    for name, mask in new.items():
        mask[changes.first_new[name] :] = True
    changed, reached, work = {name: mask.copy() for name, mask in new.items()}, [], 0
    for name, mask in changed.items():
        mask[changes.nodes[name]] = True
    for number, names in enumerate(layers.gives):
        after = dict(new)
        for name in names:
            after[name] = changed[name].copy()
            for relation in layers.into(number, name):
                lists = changes.lists[relation]
                after[name][lists] = True
                sources = changed[relation[0]].copy()
                sources[changes.first_new[relation[0]] :] = False  # the edges of new nodes are in lists that changed
                if not layers.model.two_sided:
                    sources[lists] = True
                if sources.any():
                    mark_targets(data, relation, sources, after[name], marks)
        nodes = {name: torch.from_numpy(np.flatnonzero(after[name])) for name in names}
        work += sum(layers.work_of(number, name, ids) for name, ids in nodes.items())
        if work > MOST_REACHED * layers.work:
            return None
        reached.append(nodes)
        changed = after
    return Reached(reached, work)


@torch.no_grad()
def write_layers(layers: Layerwise, folder: Path, advance: Callable[[int], None]) -> ArrayRows:
    """Writes the rows that each layer makes into files; returns those of the last one, the scores."""
    rows: RowsByType = layers.features()
    with row_tiles():
        for number, names in enumerate(layers.gives):
            made: RowsByType = {}
            for name in names:
                out = new_rows(layers.shape_of(number, name), folder / file_of(layers, number, name))
                layers.run_layer(number, rows, name, layers.nodes_of(name), keep_scores(out), advance)
                in_place = layers.memory.kept_in[number + 1 :][:1] == [KeptIn.WHOLE]
                made[name] = torch.from_numpy(out).to(layers.device) if in_place else ArrayRows(out)
            rows = made
    return ArrayRows(out)


def begin_copies(copies: Copies, layers: Layerwise, kept: Path | None, scores: Path | None, before: Before) -> None:
    """Begins the files that `update_layers` and its caller are going to write: rows of all layers, and scores."""
    for number, names in enumerate(layers.gives):
        for name in names:
            count, width = layers.shape_of(number, name)
            files = [kept and kept / file_of(layers, number, name), scores if number == len(layers.gives) - 1 else None]
            for file in filter(None, files):
                copies.begin(before.rows(number, name, width), file, count)


@torch.no_grad()
def update_layers(
    layers: Layerwise,
    folder: Path,
    kept: Path | None,
    advance: Callable[[int], None],
    before: Before,
    reached: Reached,
    copies: Copies,
) -> UpdatedRows:
    """Computes the rows that a change has reached; returns those of the last layer, the scores.

    Args:
        folder: for the rows that are computed.
        kept: where all rows are to be, as `write_layers` writes them, too.
        before: where the other rows come from.
        copies: of these, which may have begun.
    """
    rows: RowsByType = dict(layers.features_by_id())
    with row_tiles():
        for number, names in enumerate(layers.gives):
            if layers.reads_many(number, reached.nodes[number]):
                rows = layers.in_memory(number, rows)
            made: dict[str, UpdatedRows] = {}
            for name in names:
                nodes, (count, width) = reached.nodes[number][name], layers.shape_of(number, name)
                file = file_of(layers, number, name)
                out = new_rows((len(nodes), width), folder / file)
                if len(nodes):
                    layers.run_layer(number, rows, name, nodes.to(layers.device), keep_scores(out), advance)
                made[name] = UpdatedRows(before.rows(number, name, width), nodes, out, copies)
                if kept is not None:
                    made[name].write(kept / file, count)
            rows = dict(made)
    return made[names[0]]


def file_of(layers: Layerwise, number: int, name: str) -> str:
    """The file of the rows that a layer makes for the nodes of a type."""
    return layer_file(number, layers.node_types.index(name))
