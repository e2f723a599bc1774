"""A graph in pieces: consecutive targets with all of their in-neighbours, as blocks that layers take."""

import bisect
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cohort_gnn.nn.block import Block
from cohort_gnn.spec.graph import EdgeType

EDGES_AT_ONCE = 1 << 18  # whose loops are counted
READ_AT_ONCE = 1 << 20  # elements of a file
FEW = 100  # sources in less than so much of the nodes are sorted, not looked for among all


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

    def num_edges(self, relations: Sequence[EdgeType], first: int, last: int) -> int:
        """Of edge types into one node type: those into its nodes [first, last), at any time."""
        lists = (self.edges[relation].indptr for relation in relations)
        return sum(int(indptr[last] - indptr[first]) for indptr in lists)

    def pieces(
        self,
        relations: Sequence[EdgeType],
        bytes_of_target: int,
        bytes_of_edge: int,
        limit_bytes: int,
        bytes_of_source: int = 0,
    ) -> Iterator[tuple[int, int]]:
        """[first, last) of targets, one after the other, that stay with their edges and sources, of which there are no
        more than edges or nodes, below a limit; at least one.

        Args:
            relations: edge types into one node type, at least one.
        """

        def cost(first: int, last: int) -> int:
            edges = [self.num_edges([relation], first, last) for relation in relations]
            sources = sum(min(count, self.counts[name]) for count, (name, _, _) in zip(edges, relations, strict=True))
            return (last - first) * bytes_of_target + sum(edges) * bytes_of_edge + sources * bytes_of_source

        return pieces_below(limit_bytes, self.counts[relations[0][2]], cost)

    def blocks(
        self, name: str, relations: Sequence[EdgeType], first: int, last: int
    ) -> tuple[dict[EdgeType, Block], dict[str, Tensor]]:
        """The edges of each edge type into the nodes [first, last) of a node type, and the nodes of their sources,
        int64 [sources] of each node type: of the targets' type the targets first."""
        lists = {relation: self._edges(relation, first, last) for relation in relations}
        targets = torch.arange(first, last, device=self.device)
        ids = {}
        for kind in self.counts:
            own, begin, end = (targets, first, last) if kind == name else (targets[:0], 0, 0)
            sources = [nodes for relation, (_, nodes) in lists.items() if relation[0] == kind]
            ids[kind] = torch.cat((own, self._others(kind, sources, begin, end))) if sources else own
            position = self._position[kind]
            position[ids[kind]] = torch.arange(len(ids[kind]), dtype=position.dtype, device=self.device)
        blocks = {}
        for relation, (indptr, nodes) in lists.items():
            own = ids[relation[0]]
            degrees = self._degrees[relation][own] if self._degrees else None
            source = self._position[relation[0]][nodes].long()
            blocks[relation] = Block(indptr, source, len(own), last - first, degrees=degrees)
        return blocks, ids

    def blocks_of_all(self, relations: Sequence[EdgeType], first: int, last: int) -> dict[EdgeType, Block]:
        """The same edges for a layer that has the rows of all nodes in front of it: sources are nodes, and targets have
        places. Without degrees."""
        own = torch.arange(first, last, device=self.device)
        return {
            relation: Block(
                *self._edges(relation, first, last), self.counts[relation[0]], last - first, own_row_index=own
            )
            for relation in relations
        }

    def _edges(self, relation: EdgeType, first: int, last: int) -> tuple[Tensor, Tensor]:
        """(the first edge of each target, int64 [targets + 1]; the nodes of the sources, int64 [edges])"""
        lists = self.edges[relation]
        begin, end = int(lists.indptr[first]), int(lists.indptr[last])
        indptr = ids_on(lists.indptr, first, last + 1, self.device) - begin
        sources = ids_on(lists.indices, begin, end, self.device)
        are_in_time = self.in_time(relation, first, last)
        if are_in_time is None:
            return indptr, sources
        before = torch.cat((are_in_time.new_zeros(1, dtype=torch.int64), are_in_time.cumsum(0)))
        return before[indptr], sources[are_in_time]

    def in_time(self, relation: EdgeType, first: int, last: int) -> Tensor | None:
        """bool [edges]: which edges into the nodes [first, last) blocks have; None: all."""
        if relation not in self._spans:
            return None
        lists, (oldest, latest) = self.edges[relation], self._spans[relation]
        times = ids_on(lists.edge_times, int(lists.indptr[first]), int(lists.indptr[last]), self.device)
        return (times >= oldest) & (times <= latest)

    def _others(self, name: str, sources: list[Tensor], first: int, last: int) -> Tensor:
        """The nodes of a type that are sources, except [first, last), ascending, each once."""
        if sum(map(len, sources)) < self.counts[name] // FEW:
            candidates = torch.cat(sources).unique()
            return candidates[(candidates < first) | (candidates >= last)]
        wanted = self._wanted[name]
        for nodes in sources:
            wanted[nodes] = True
        wanted[first:last] = False
        others = wanted.nonzero().view(-1)
        wanted[others] = False
        return others

    def _count_degrees(self, relation: EdgeType) -> Tensor:
        """int32 [targets]"""
        degrees = torch.empty(self.counts[relation[2]], dtype=torch.int32, device=self.device)
        for first, last in self.pieces([relation], 1, 1, EDGES_AT_ONCE):
            indptr, sources = self._edges(relation, first, last)
            targets = torch.arange(first, last, device=self.device).repeat_interleave(indptr.diff())
            loops = targets[sources == targets] - first
            degrees[first:last] = indptr.diff() - torch.bincount(loops, minlength=last - first)
        return degrees


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
