"""Cohort data sets: generating, checking and writing, in C++."""

from collections.abc import Callable, Sequence
from typing import Annotated

import numpy
from numpy.typing import NDArray


def check(folder: str) -> list:
    """All problems of a data set, as (place, expected, found, hint)."""

def demand_in_range(folder: str, look: Callable | None = None) -> None:
    """
    Refuses offsets and ids that lead out of the arrays. look() is called about 20 times a second; what it raises ends the work.
    """

def find_rows(folder: str, prefer_raw: bool) -> tuple[list[tuple[str, bool]], list[tuple[str, bool]]]:
    """
    After the cheap checks, of each node type and then of each relation: the file of encoded rows, empty without, and whether there are raw ones.
    """

class GenerateOptions:
    """A random data set, whole or in parts."""

    def __init__(self, *, kind: str, nodes: int, edges: int, dim: int, dtype: str, classes: int, seed: int, split: Sequence[float], undirected: bool, edge_weights: bool, edge_dim: int = 0) -> None: ...

def generate(out: str, options: GenerateOptions, overwrite: bool) -> None:
    """Writes a random data set."""

def generate_graph(folder: str, name: str, options: GenerateOptions) -> None:
    """Writes all but the features into an existing folder."""

class FeatureGenerator:
    """The feature rows of a random data set, in any order."""

    def __init__(self, options: GenerateOptions) -> None: ...

    @property
    def row_bytes(self) -> int: ...

    def write(self, labels: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], nodes: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order='C', device='cpu')]) -> None:
        """
        labels int64 [V], nodes int64 [n] -> out uint8 [n, row_bytes], filled in place.
        """

def take_rows(rows: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order='C', device='cpu', writable=False)], ids: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order='C', device='cpu')]) -> None:
    """
    out[i] = rows[ids[i]]: uint8 [V, row bytes], int64 [n] -> uint8 [n, row bytes], filled in place.
    """

def count_degrees(indptr: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], indices: Annotated[NDArray, dict(shape=(None,), order='C', device='cpu', writable=False)], degrees: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu')], times: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, oldest: int = 0, latest: int = 0) -> None:
    """
    degrees[v] = the in-neighbours of v but v itself, int32 [targets], filled in place; with times int64 [E], by edges of a time in [oldest, latest].
    """

def digest_rows(rows: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order='C', device='cpu', writable=False)], digests: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu')], indptr: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, look: Callable | None = None) -> None:
    """
    uint8 [n, row bytes], uint64 [n]: digests[i] becomes that of itself and row i; with indptr int64 [m + 1] and uint64 [m], of itself and rows indptr[i] to indptr[i + 1]. look() is called about 20 times a second; what it raises ends the work.
    """

def mark_targets(indptr: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], indices: Annotated[NDArray, dict(shape=(None,), order='C', device='cpu', writable=False)], is_marked: Annotated[NDArray[numpy.bool_], dict(shape=(None,), order='C', device='cpu', writable=False)], reached: Annotated[NDArray[numpy.bool_], dict(shape=(None,), order='C', device='cpu')], look: Callable | None = None) -> None:
    """
    reached[v] becomes true where one of the in-neighbours of v is marked: bool [sources] -> bool [targets], filled in place. look() as above.
    """

def lists_of_nodes(indptr: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], indices: Annotated[NDArray, dict(shape=(None,), order='C', device='cpu', writable=False)], nodes: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], keys: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], new_sources: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], new_targets: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], most: int, seed: int, most_edges: int, times: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, new_times: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, are_numbered: bool = False, oldest: int = -9223372036854775808, latest: int = 9223372036854775807) -> tuple[Annotated[NDArray[numpy.int64], dict(shape=(None,))], Annotated[NDArray[numpy.int64], dict(shape=(None,))], Annotated[NDArray[numpy.int64], dict(shape=(None,))]]:
    """
    (offsets int64 [n + 1], sources int64 [m], places int64 [m]) of the lists of in-neighbours of nodes int64 [n], with new edges where a data set of all would have them; of longer lists than `most`, if that is not -1, so many are drawn, by the seed and the node's key int64 [n]. A place is that of an edge in `indices`; of the i-th new edge it is the number of edges there, plus i. With times int64 [E], by which each list ascends, and those of new edges, lists have the edges of a time in [oldest, latest]; new edges of equal times stay in their order if `are_numbered`. No sources if there are more than `most_edges`.
    """

def numbered_nodes(first: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], nodes: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> tuple[Annotated[NDArray[numpy.int64], dict(shape=(None,))], Annotated[NDArray[numpy.int64], dict(shape=(None,))]]:
    """
    (the nodes that are not among the first ones, each once; for each node its place among the first and then these): int64 [n], each once, and int64 [m] -> int64 [k], int64 [m].
    """

def partition(folder: str, *, method: str, num_parts: int, seed: int, memory_bytes: int) -> Annotated[NDArray[numpy.int32], dict(shape=(None,))]:
    """
    int32 [V]: the part of each node; memory_bytes 0: what the machine has left.
    """

def has_metis() -> bool: ...

def merge_edges(*, place: str, order: str, dedupe: bool, has_loops: bool, indptr: Sequence[str], indices: Sequence[str], beside: Sequence[Sequence[str]], removed: Sequence[str] | None) -> tuple[int, Annotated[NDArray[numpy.int64], dict(shape=(None,))]]:
    """
    Puts new edges into the lists of a relation, and takes edges out of them: of each array the file as it was, the file of what comes, and the file to write; removed: indptr and indices. Returns the number of edges, and the nodes whose lists are others than before; see dataset/appending/merge.h.
    """

def reverses(relations: Sequence[tuple[int, int, Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray, dict(shape=(None,), order='C', device='cpu', writable=False)], int]]) -> list[tuple[int, list[tuple[int, bool]]]]:
    """
    Of each (source type, target type, indptr int64 [V + 1], indices int32 or int64 [E], reverse_of): its reverse_of, and where its edges are, [(relation, in the other direction)]; see dataset/reverses.h.
    """

class OutputFolder:
    """A folder that appears whole (commit) or not at all (discard)."""

    def __init__(self, out: str, overwrite: bool, keeps_others: bool) -> None: ...

    @property
    def path(self) -> str: ...

    @property
    def out(self) -> str: ...

    def commit(self) -> None: ...

    def discard(self) -> None: ...

class IdMap:
    """Finds the nodes of arbitrary ids."""

    def __init__(self, ids: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], nodes: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None:
        """
        ids int64 [V], strictly ascending; nodes int64 [V], or [0] when id i is node i.
        """

    def find(self, ids: Annotated[NDArray[numpy.int64], dict(shape=(None,), device='cpu', writable=False)], nodes: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu')]) -> None:
        """
        nodes[i] = the node of ids[i], or -1: int64 [n] -> int64 [n], filled in place.
        """

class TextMap:
    """Finds the nodes of ids that are texts."""

    def __init__(self, offsets: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], bytes: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None:
        """
        Of text i, which is node i, the bytes are bytes[offsets[i]:offsets[i + 1]]: int64 [V + 1], uint8 [any]; of equal texts, the first is found.
        """

    def find(self, offsets: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], bytes: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], nodes: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu')]) -> None:
        """
        nodes[i] = the node of text i, or -1: int64 [n + 1], uint8 [any] -> int64 [n], filled in place.
        """

    @property
    def distinct(self) -> int: ...

    @property
    def nbytes(self) -> int: ...

class IdSorter:
    """Collects the distinct ids of a graph, more than memory holds."""

    def __init__(self, folder: str, memory_bytes: int) -> None: ...

    def add(self, ids: Annotated[NDArray[numpy.int64], dict(shape=(None,), device='cpu', writable=False)]) -> None:
        """int64 [any]"""

    def write(self, path: str) -> None:
        """Writes them, ascending, into an .npy file, int64 [V]."""

class EdgeSorter:
    """
    Edges in any order, more than memory holds, sorted by destination and source.
    """

    def __init__(self, *, folder: str, memory_bytes: int, place: str, num_nodes: int, transpose: bool = False, reverse: bool = False, dedupe: bool = False, self_loops: str = 'keep', weighted: bool = False, timed: bool = False, numbered: bool = False, num_sources: int = -1, source_type: str = '', target_type: str = '') -> None:
        """
        num_nodes -1: as many as the edges name; weighted: equal edges that come once add up; numbered: write the number of each edge among those that were added. Between two types, num_nodes are those of the target type.
        """

    def add(self, src: Annotated[NDArray[numpy.int64], dict(shape=(None,), device='cpu', writable=False)], dst: Annotated[NDArray[numpy.int64], dict(shape=(None,), device='cpu', writable=False)], ids: IdMap | None, weights: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, times: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None) -> None:
        """
        int64 [n] each, weights float32 [n] or times int64 [n] where edges have them; with `ids` ends are ids, else nodes.
        """

    def stop(self) -> None:
        """Ends add() in another thread with RuntimeError."""

    def write(self, folder: str, progress: Callable) -> None:
        """
        Writes indptr.npy, indices.npy and, with weights, times or numbers, edge_weights.npy, edge_times.npy or edge_numbers.npy.
        """

    @property
    def num_nodes(self) -> int: ...

    @property
    def edges_read(self) -> int: ...

    @property
    def edges_written(self) -> int: ...
