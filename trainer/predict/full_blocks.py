"""A graph in pieces: targets in ascending order with all of their in-neighbours, as blocks that layers take."""

import bisect
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from cohort_gnn.dataset import _native as dataset_native
from cohort_gnn.nn.block import Block
from cohort_gnn.spec.graph import EdgeType

READ_AT_ONCE = 1 << 20  # elements of a file
FEW = 100  # sources in less than so much of the nodes are sorted, not looked for among all

Nodes: TypeAlias = range | Tensor  # of a type, ascending, each once: consecutive ones, or int64 [n] on the device


class FullBlocks:
    """Blocks of full neighbourhoods.

    Memory: 5 bytes a node (9 where a type has 2^31 nodes or more), and 4 more with degrees.

    Args:
        counts: nodes of each node type.
        edges: of each edge type what has ``indptr``, int64 [targets + 1], and ``indices``, int32 or int64 [E],
            in-neighbours.
        with_degrees: blocks come with the in-degrees of their sources, self-loops left out; edges then lead from a node
            type to itself.
        device: where blocks are made.
        spans: the first and the last time that edges of an edge type may have, whose ``edge_times``, int64 [E], then
            say which are in blocks; of others, all are.
    """

    def __init__(
        self,
        counts: Mapping[str, int],
        edges: Mapping[EdgeType, Any],
        with_degrees: bool,
        device: torch.device,
        spans: Mapping[EdgeType, tuple[int, int]] | None = None,
    ):
        self.counts, self.edges, self.device, self._spans = counts, edges, device, spans or {}
        self._wanted = {name: torch.zeros(count, dtype=torch.bool, device=device) for name, count in counts.items()}
        self._position = {
            name: torch.empty(count, dtype=position_dtype(count), device=device) for name, count in counts.items()
        }
        self._degrees = {relation: self._count_degrees(relation) for relation in edges} if with_degrees else {}

    def num_edges(self, relations: Sequence[EdgeType], nodes: Nodes) -> int:
        """Of edge types into one node type: those into some of its nodes, at any time."""
        return sum(self._edges_before(relation, nodes)(len(nodes)) for relation in relations)

    def _edges_before(self, relation: EdgeType, nodes: Nodes) -> Callable[[int], int]:
        """Gives the number of edges into the first n of some nodes."""
        indptr = self.edges[relation].indptr
        if isinstance(nodes, range):
            return lambda count: int(indptr[nodes.start + count] - indptr[nodes.start])
        ids = nodes.cpu().numpy()
        before = np.concatenate(([0], np.cumsum(indptr[ids + 1] - indptr[ids])))
        return lambda count: int(before[count])

    def pieces(
        self,
        relations: Sequence[EdgeType],
        nodes: Nodes,
        bytes_of_target: int,
        bytes_of_edge: int,
        limit_bytes: int,
        bytes_of_source: int = 0,
    ) -> Iterator[tuple[int, int]]:
        """[first, last) of some targets, one after the other, that stay with their edges and sources, of which there
        are no more than edges or nodes, below a limit; at least one.

        Args:
            relations: edge types into one node type, at least one.
        """

        edges_before = [self._edges_before(relation, nodes) for relation in relations]

        def cost(first: int, last: int) -> int:
            edges = [before(last) - before(first) for before in edges_before]
            sources = sum(min(count, self.counts[name]) for count, (name, _, _) in zip(edges, relations, strict=True))
            return (last - first) * bytes_of_target + sum(edges) * bytes_of_edge + sources * bytes_of_source

        return pieces_below(limit_bytes, len(nodes), cost)

    def blocks(
        self, name: str, relations: Sequence[EdgeType], nodes: Nodes
    ) -> tuple[dict[EdgeType, Block], dict[str, Tensor]]:
        """The edges of each edge type into some nodes of a node type, and the nodes of their sources, int64 [sources]
        of each node type: of the targets' type the targets first."""
        lists = {relation: self._edges(relation, nodes) for relation in relations}
        targets = self._ids(nodes)
        ids = {}
        for kind in self.counts:
            own, but = (targets, nodes) if kind == name else (targets[:0], range(0))
            sources = [neighbors for relation, (_, neighbors) in lists.items() if relation[0] == kind]
            ids[kind] = torch.cat((own, self._others(kind, sources, but))) if sources else own
            position = self._position[kind]
            position[ids[kind]] = torch.arange(len(ids[kind]), dtype=position.dtype, device=self.device)
        blocks = {}
        for relation, (indptr, neighbors) in lists.items():
            own = ids[relation[0]]
            degrees = self._degrees[relation][own] if self._degrees else None
            source = self._position[relation[0]][neighbors].long()
            blocks[relation] = Block(indptr, source, len(own), len(nodes), degrees=degrees)
        return blocks, ids

    def blocks_of_all(self, relations: Sequence[EdgeType], nodes: Nodes) -> dict[EdgeType, Block]:
        """The same edges for a layer that has the rows of all nodes in front of it: sources are nodes, and targets have
        places. Without degrees."""
        own = self._ids(nodes)
        return {
            relation: Block(*self._edges(relation, nodes), self.counts[relation[0]], len(nodes), own_row_index=own)
            for relation in relations
        }

    def positions(self, relation: EdgeType, nodes: Nodes) -> range | Tensor:
        """Where the edges are that blocks have of some targets, in the order of the blocks: all or int64 [edges]."""
        places, are_in_time = self._places(relation, nodes), self._in_time(relation, nodes)
        return places if are_in_time is None else self._ids(places)[are_in_time]

    def _ids(self, nodes: Nodes) -> Tensor:
        """int64 [n]"""
        return torch.arange(nodes.start, nodes.stop, device=self.device) if isinstance(nodes, range) else nodes

    def _offsets(self, relation: EdgeType, nodes: Nodes) -> Tensor:
        """int64 [n + 1]: the first edge of each of some targets, of theirs at any time."""
        indptr = self.edges[relation].indptr
        if isinstance(nodes, range):
            return ids_on(indptr, nodes.start, nodes.stop + 1, self.device) - int(indptr[nodes.start])
        ids = nodes.cpu().numpy()
        counts = torch.from_numpy(np.asarray(indptr[ids + 1] - indptr[ids])).to(self.device)
        return torch.cat((counts.new_zeros(1), counts.cumsum(0)))

    def _places(self, relation: EdgeType, nodes: Nodes) -> Nodes:
        """Where the edges of some targets are, at any time."""
        indptr = self.edges[relation].indptr
        if isinstance(nodes, range):
            return range(int(indptr[nodes.start]), int(indptr[nodes.stop]))
        first, begin = self._offsets(relation, nodes), torch.from_numpy(indptr[nodes.cpu().numpy()])
        shifts = (begin.to(self.device) - first[:-1]).repeat_interleave(first.diff())
        return shifts + torch.arange(len(shifts), device=self.device)

    def _edges(self, relation: EdgeType, nodes: Nodes) -> tuple[Tensor, Tensor]:
        """(the first edge of each target, int64 [targets + 1]; the nodes of the sources, int64 [edges])"""
        indptr = self._offsets(relation, nodes)
        sources = self._taken(self.edges[relation].indices, self._places(relation, nodes))
        are_in_time = self._in_time(relation, nodes)
        if are_in_time is None:
            return indptr, sources
        before = torch.cat((are_in_time.new_zeros(1, dtype=torch.int64), are_in_time.cumsum(0)))
        return before[indptr], sources[are_in_time]

    def _in_time(self, relation: EdgeType, nodes: Nodes) -> Tensor | None:
        """bool [edges]: which edges into some nodes blocks have; None: all."""
        if relation not in self._spans:
            return None
        oldest, latest = self._spans[relation]
        times = self._taken(self.edges[relation].edge_times, self._places(relation, nodes))
        return (times >= oldest) & (times <= latest)

    def _taken(self, array: np.ndarray, places: Nodes) -> Tensor:
        """int64 [n]: elements of an array."""
        if isinstance(places, range):
            return ids_on(array, places.start, places.stop, self.device)
        return torch.from_numpy(np.asarray(array[places.cpu().numpy()], np.int64)).to(self.device)

    def _others(self, name: str, sources: list[Tensor], but: Nodes) -> Tensor:
        """The nodes of a type that are sources, except some, ascending, each once."""
        wanted, own = self._wanted[name], slice(but.start, but.stop) if isinstance(but, range) else but
        if sum(map(len, sources)) < self.counts[name] // FEW:
            candidates = torch.cat(sources).unique()
            wanted[own] = True
            others = candidates[~wanted[candidates]]
            wanted[own] = False
            return others
        for nodes in sources:
            wanted[nodes] = True
        wanted[own] = False
        others = wanted.nonzero().view(-1)
        wanted[others] = False
        return others

    def _count_degrees(self, relation: EdgeType) -> Tensor:
        """int32 [targets]"""
        edges, degrees = self.edges[relation], np.empty(self.counts[relation[2]], np.int32)
        in_time = (edges.edge_times, *self._spans[relation]) if relation in self._spans else ()
        dataset_native.count_degrees(edges.indptr, edges.indices, degrees, *in_time)
        return torch.from_numpy(degrees).to(self.device)


def pieces_below(limit: int, count: int, cost: Callable[[int, int], int]) -> Iterator[tuple[int, int]]:
    """Consecutive ranges [first, last) of ``count`` whose cost stays below a limit; each has at least one element."""
    first = 0
    while first < count:
        piece_cost = functools.partial(cost, first)
        last = max(bisect.bisect_right(range(count + 1), limit, lo=first + 1, key=piece_cost) - 1, first + 1)
        yield first, last
        first = last


def ids_on(array: np.ndarray, first: int, last: int, device: torch.device) -> Tensor:
    """array[first:last] as int64, by pieces, so that a GPU's takes little host memory."""
    out = torch.empty(last - first, dtype=torch.int64, device=device)
    for begin in range(first, last, READ_AT_ONCE):
        some = torch.from_numpy(np.array(array[begin : min(begin + READ_AT_ONCE, last)]))
        out[begin - first :][: len(some)] = some.to(device)
    return out


def position_dtype(num_nodes: int) -> torch.dtype:
    return torch.int32 if num_nodes < 2**31 else torch.int64
