"""A graph in pieces: consecutive targets with all of their in-neighbours, as blocks that layers take."""

import bisect
import functools
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from cohort_gnn.nn.block import Block

EDGES_AT_ONCE = 1 << 18  # whose loops are counted
READ_AT_ONCE = 1 << 20  # elements of a file
FEW = 100  # sources in less than so much of the nodes are sorted, not looked for among all


class FullBlocks:
    """Blocks of full neighbourhoods.

    Memory: 5 bytes a node (9 from 2^31 nodes on), and 4 more with degrees.

    Args:
        indptr: int64 [V + 1].
        indices: int32 or int64 [E], in-neighbours.
        with_degrees: blocks come with the in-degrees of their sources, self-loops left out.
        device: where blocks are made.
    """

    def __init__(self, indptr: np.ndarray, indices: np.ndarray, with_degrees: bool, device: torch.device):
        self.indptr, self.indices, self.device = indptr, indices, device
        self.num_nodes = len(indptr) - 1
        self._wanted = torch.zeros(self.num_nodes, dtype=torch.bool, device=device)
        self._position = torch.empty(self.num_nodes, dtype=position_dtype(self.num_nodes), device=device)
        self._degrees = self._count_degrees() if with_degrees else None

    def pieces(
        self, bytes_of_target: int, bytes_of_edge: int, limit_bytes: int, bytes_of_source: int = 0
    ) -> Iterator[tuple[int, int]]:
        """[first, last) of targets, one after the other, that stay with their edges and sources, of which there are no
        more than edges or nodes, below a limit; at least one."""

        def cost(first: int, last: int) -> int:
            edges = int(self.indptr[last] - self.indptr[first])
            sources = min(edges, self.num_nodes)
            return (last - first) * bytes_of_target + edges * bytes_of_edge + sources * bytes_of_source

        return pieces_below(limit_bytes, self.num_nodes, cost)

    def block(self, first: int, last: int) -> tuple[Block, Tensor]:
        """The edges into the nodes [first, last), and the nodes of its sources, int64 [sources], targets first."""
        indptr, sources = self._edges(first, last)
        ids = torch.cat((torch.arange(first, last, device=self.device), self._others(sources, first, last)))
        self._position[ids] = torch.arange(len(ids), dtype=self._position.dtype, device=self.device)
        degrees = None if self._degrees is None else self._degrees[ids]
        return Block(indptr, self._position[sources].long(), len(ids), last - first, degrees=degrees), ids

    def block_of_all(self, first: int, last: int) -> Block:
        """The same edges for a layer that has the rows of all nodes in front of it: sources are nodes, and targets have
        places. Without degrees."""
        own = torch.arange(first, last, device=self.device)
        return Block(*self._edges(first, last), self.num_nodes, last - first, own_place=own)

    def _edges(self, first: int, last: int) -> tuple[Tensor, Tensor]:
        """(the first edge of each target, int64 [targets + 1]; the nodes of the sources, int64 [edges])"""
        begin, end = int(self.indptr[first]), int(self.indptr[last])
        indptr = read_ids(self.indptr, first, last + 1, self.device)
        return indptr - begin, read_ids(self.indices, begin, end, self.device)

    def _others(self, sources: Tensor, first: int, last: int) -> Tensor:
        """The sources but [first, last), ascending, each once."""
        if len(sources) < self.num_nodes // FEW:
            found = sources.unique()
            return found[(found < first) | (found >= last)]
        self._wanted[sources] = True
        self._wanted[first:last] = False
        others = self._wanted.nonzero().view(-1)
        self._wanted[others] = False
        return others

    def _count_degrees(self) -> Tensor:
        """int32 [V]"""
        degrees = torch.empty(self.num_nodes, dtype=torch.int32, device=self.device)
        for first, last in self.pieces(1, 1, EDGES_AT_ONCE):
            indptr, sources = self._edges(first, last)
            targets = torch.arange(first, last, device=self.device).repeat_interleave(indptr.diff())
            loops = targets[sources == targets] - first
            degrees[first:last] = indptr.diff() - torch.bincount(loops, minlength=last - first)
        return degrees


def pieces_below(limit: int, count: int, cost: Callable[[int, int], int]) -> Iterator[tuple[int, int]]:
    """[first, last) of so many, one after the other, whose cost stays below a limit; at least one."""
    first = 0
    while first < count:
        of_piece = functools.partial(cost, first)
        last = max(bisect.bisect_right(range(count + 1), limit, lo=first + 1, key=of_piece) - 1, first + 1)
        yield first, last
        first = last


def read_ids(array: np.ndarray, first: int, last: int, device: torch.device) -> Tensor:
    """array[first:last] as int64, by pieces, so that a GPU's takes little host memory."""
    out = torch.empty(last - first, dtype=torch.int64, device=device)
    for place in range(first, last, READ_AT_ONCE):
        some = torch.from_numpy(np.array(array[place : min(place + READ_AT_ONCE, last)]))
        out[place - first :][: len(some)] = some.to(device)
    return out


def position_dtype(num_nodes: int) -> torch.dtype:
    return torch.int32 if num_nodes < 2**31 else torch.int64
