from collections.abc import Sequence
from typing import Annotated

import numpy
from numpy.typing import NDArray


def with_cuda() -> bool:
    """True when this build has the CUDA backend."""

def end_with_parent(parent: int, signal: int) -> None:
    """Has the kernel send this process a signal when its parent dies."""

def padded(count: int) -> int:
    """How many there is room for where there are so many."""

class HeldSlot:
    """
    A batch in shared memory. The slot goes back to the sampler when this object and all views of it are gone.
    """

    @property
    def edge_index(self) -> object: ...

    @property
    def source_node(self) -> object:
        """
        int64 [num_edges], the node of each edge's source, where last_hop_global.
        """

    @property
    def indptr(self) -> object: ...

    @property
    def e_id(self) -> object:
        """
        int64 [num_edges]: where each edge stands in the data set's indices; None where nobody asked for it.
        """

    @property
    def edge_weight(self) -> object:
        """
        float32 [num_edges], as edge_index has the edges; None where nobody asked for it.
        """

    @property
    def n_id(self) -> object: ...

    @property
    def place(self) -> object:
        """
        int64 [num_nodes], the row of each node in the table or the pool of its type, unless slots have rows.
        """

    @property
    def tree(self) -> object:
        """
        int64 [num_nodes], the seed, by its number in the batch, whose tree each node is in; None: seeds share nodes.
        """

    @property
    def y(self) -> object: ...

    @property
    def endpoints(self) -> object:
        """
        Where seeds are pairs: int64, the batch-local ids of their sources, then of their targets.
        """

    @property
    def input_id(self) -> object: ...

    @property
    def nodes_of_types(self) -> list[list[int]]:
        """
        Nodes by hop of each node type. n_id has the nodes of one type after the other.
        """

    @property
    def edges_of_relations(self) -> list[list[int]]:
        """
        Edges by hop of each relation. edge_index, indptr and e_id have the edges of one relation after the other.
        """

    def table(self, type: int) -> object:
        """Feature rows of the nodes of a type; None where the type has none."""

    def places(self, type: int) -> object:
        """The part of place that is the type's, int64 [nodes]."""

    def edge_table(self, relation: int) -> object:
        """Feature rows of the edges of a relation; None where batches have none."""

    def offsets(self, relation: int) -> object:
        """The part of indptr that is the relation's, int64 [targets + 1]."""

    def edges(self, relation: int) -> object:
        """The columns of edge_index that are the relation's, int64 [2, edges]."""

    @property
    def last_hop_global(self) -> bool:
        """
        True when edge_index is without the edges of the last hop, and source_node has all.
        """

    def holds(self, address: int) -> bool:
        """Whether the address lies in the slot."""

    def record_stream(self, stream: int) -> None:
        """
        Work on this CUDA stream (its handle), too, may still read the slot when it is given back.
        """

    def leave_rows(self) -> None:
        """
        Work put on the batch's CUDA stream from now on reads no rows of the pool that the batch names.
        """

    @property
    def num_seeds(self) -> int: ...

    @property
    def num_inputs(self) -> int:
        """
        How much of the seed set the batch has: seeds, or pairs, whose endpoints are the seeds.
        """

    @property
    def step(self) -> int: ...

    @property
    def num_steps(self) -> int: ...

    @property
    def num_sampled_nodes(self) -> list[int]:
        """Nodes of all types, by hop."""

    @property
    def num_sampled_edges(self) -> list[int]:
        """Edges of all relations, by hop."""

    @property
    def sample_us(self) -> float: ...

    @property
    def fetch_us(self) -> float: ...

    @property
    def spans(self) -> tuple[float, float, float, float]:
        """
        When the sampler drew the batch and when it wrote the slot: begin and end of each, in microseconds of the clock of time.monotonic().
        """

    @property
    def row_tiers(self) -> list[tuple[int, int, float]]:
        """
        (rows, stored bytes, seconds) of feature rows by where they were read: local, peer, host, recent.
        """

    @property
    def edge_rows(self) -> tuple[int, int, float]:
        """
        (rows, stored bytes, seconds) of the edges' feature rows, all of which are read from host memory.
        """

    @property
    def list_tiers(self) -> list[tuple[int, int]]:
        """(lists, bytes of neighbours drawn) of neighbour lists, likewise."""

class Receiver:
    """The trainer's end of the channel in a folder."""

    def __init__(self, folder: str) -> None: ...

    def request(self, *, seed_set: int, epoch: int, first_step: int, step_stride: int, shuffle: bool, batch_size: int, fanout: Sequence[int], sampler_sms: int = 0, labels_of_seeds: bool = False, last_hop_global: bool = False, plane_a: bool = False, replace: bool = False, sharing: str = 'shared', pairs: tuple[int, float, int, int, int] = (0, 0.0, 0, 0, 0)) -> int:
        """
        Asks for a pass over a seed set (layout.h), batches first_step, first_step + step_stride, ...; returns its number. `sampler_sms`: the first so many SMs of the GPU are the sampler's, 0: all are shared; `labels_of_seeds`: batches need no others; `last_hop_global`: where rows are in place, sources of the last hop need no local ids; `plane_a`: rows of codec planes come as plane A alone tells them; `replace`: neighbours are drawn with replacement; `sharing`: "shared", "disjoint", or "latest": disjoint, the latest edges.
        """

    def next(self, pass_number: int, limit_seconds: float, stream: int) -> HeldSlot:
        """
        The next batch of the pass. `limit_seconds`: how long the sampler may stay in one stage; `stream`: handle of the CUDA stream on which the batch will be used, 0 on the CPU.
        """

    def cancel_below(self, pass_number: int) -> None:
        """Batches of earlier passes are not wanted any more."""

    def leave(self) -> None:
        """Ends the trainer's part; batches held stay valid."""

    def set_idle(self) -> None:
        """Says that the trainer is between passes."""

    def fail(self, text: str) -> None:
        """Leaves the reason of the trainer's failure in the channel."""

    @property
    def rows_in(self) -> str:
        """
        Where rows are: "slots", where x has them; "table" of all rows, or "pool" of rows of recent batches, one a node type, of which a batch has rows `place`.
        """

    @property
    def num_types(self) -> int:
        """Node types of the graph, at least 1."""

    def rows(self, type: int) -> object:
        """
        The table or the pool [num_rows, dim] of a node type, in memory of the GPU; None where it has no features. On the CPU the data set has the table. Of a pool only rows that a batch names may be read.
        """

    @property
    def device(self) -> str:
        """"cpu" or "cuda:<ordinal>"."""

    @property
    def slots_bytes(self) -> int:
        """Memory of all slots as they are now, and of pools of rows."""

class RestStream:
    """
    A stream of a GPU (CUDA ordinal) whose kernels keep off the SMs of the sampler.
    """

    def __init__(self, gpu: int, sampler_sms: int) -> None: ...

    @property
    def num_sms(self) -> int: ...

    @property
    def handle(self) -> int:
        """The cudaStream_t; it lives as long as this object."""

FLOAT32: int = 0

BFLOAT16: int = 1

FLOAT16: int = 2

FLOAT64: int = 3

NO_OWN: int = 0

ADD_OWN: int = 1

OWN_BESIDE: int = 2

NO_DROP: int = 0

DROP_IN: int = 1

DROP_BACK: int = 2

RELU: int = 0

ELU: int = 1

ADAGRAD: int = 0

ADAM: int = 1

class BlockRef:
    """Edges grouped by row: addresses, see trainer/native/block.h."""

    def __init__(self, *, offsets: int, num_offsets: int, index: int, edge: int, num_edges: int, num_rows: int, skip_self: bool) -> None: ...

class RowDrop:
    """ReLU and dropout; see trainer/native/sum_rows.h."""

    def __init__(self, *, use: int, p: float, key: int, key_at: int, kept: int) -> None: ...

def sum_rows(stream: int | None, *, block: BlockRef, dtype: int, out_dtype: int, dim: int, x: int, x_stride: int, own_use: int, own: int, own_stride: int, num_own: int, heads: int, edge_factor: int, index_factor: int, own_factor: int, row_factor: int, mean: bool, out: int, out_stride: int, inverse_count: int, partial: int, drop: RowDrop, place: int, own_place: int) -> None:
    """
    Gathers and sums rows; see trainer/native/sum_rows.h. `stream`: torch's, None on the CPU; arrays: addresses.
    """

def transpose(stream: int | None, *, block: BlockRef, num_columns: int, offsets: int, index: int, edge: int, scratch: int, scratch_bytes: int) -> None:
    """Exchanges rows and columns; see trainer/native/transpose.h."""

def drop(stream: int | None, *, dtype: int, activation: int, size: int, p: float, key: int, key_at: int, x: int, out: int) -> None:
    """Activation and dropout; see trainer/native/activation.h."""

def drop_grad(stream: int | None, *, dtype: int, activation: int, size: int, p: float, y: int, grad: int, out: int) -> None:
    """Their gradient."""

class HeadRows:
    """Rows of heads; see trainer/native/head_rows.h."""

    def __init__(self, *, data: int, row_stride: int, head_stride: int) -> None: ...

class EdgeScores:
    """Scores of edges; see trainer/native/attention.h."""

    def __init__(self, *, source: int, source_stride: int, target: int, target_stride: int, slope: float, edge: int, own_edge: int) -> None: ...

def spread_rows(stream: int | None, *, block: BlockRef, dtype: int, out_dtype: int, dim: int, heads: int, x: int, x_stride: int, weights: int, own_weights: int, num_own: int, first_row: int, out: int, partial: int) -> None:
    """Sums rows that heads share; see trainer/native/head_rows.h."""

def fold_rows(stream: int | None, *, block: BlockRef, dtype: int, dim: int, heads: int, x: int, x_rows: int, weights: int, own_weights: int, num_own: int, out: int, partial: int) -> None:
    """The gradient of shared rows."""

def dot_rows(stream: int | None, *, block: BlockRef, dtype: int, grad_dtype: int, dim: int, heads: int, grad: HeadRows, x: HeadRows, num_own: int, first_row: int, dots: int, own_dots: int) -> None:
    """The gradient of the weights of rows."""

def attention(stream: int | None, *, block: BlockRef, dtype: int, dim: int, scores: EdgeScores, num_own: int, weights: int, own_weights: int, largest: int, sums: int, partial: int) -> None:
    """Softmaxes over the edges of rows; see trainer/native/attention.h."""

def attention_grad(stream: int | None, *, block: BlockRef, dtype: int, dim: int, scores: EdgeScores, num_own: int, weights: int, own_weights: int, grads: int, own_grads: int, target_grads: int, target_grads_stride: int, sums: int, partial: int) -> None:
    """Their gradient."""

def placed_scores(stream: int | None, *, dtype: int, count: int, dim: int, width: int, rows: int, place: int, vectors: int, out: int) -> None:
    """
    Rows of 16 bits times a few vectors; see trainer/native/placed_scores.h.
    """

def placed_scores_grad(stream: int | None, *, dtype: int, count: int, dim: int, width: int, parts: int, rows: int, place: int, grad: int, partial: int) -> None:
    """The gradient of the vectors."""

most_scores: int = 64

score_rows: int = 128

score_columns: int = 32

def num_score_parts(count: int, dim: int) -> int:
    """Parts in `partial` of placed_scores_grad()."""

def has_products() -> bool:
    """Whether the current GPU has what product() and product_grad() need."""

def product(stream: int | None, *, num_rows: int, depth: int, width: int, rows: int, weight: int, bias: int, out: int) -> None:
    """Many rows times a matrix, float32; see trainer/native/product.h."""

def product_grad(stream: int | None, *, num_rows: int, depth: int, width: int, grad: int, rows: int, out: int, column_sums: int, partial: int) -> None:
    """The gradient of the matrix, and that of a bias."""

def num_product_parts(num_rows: int, depth: int, width: int) -> int:
    """Parts in `partial` of product_grad()."""

max_product_depth: int = 256

class LearnedRows:
    """A table of learned rows; see trainer/native/learned_rows.h."""

    def __init__(self, *, rows: int, hot: int, hot_bits: int, hot_before: int) -> None: ...

class ChangedRows:
    """Rows on their way to a table."""

    def __init__(self, *, count: int, ids: int, place: int, rows: int) -> None: ...

def take_rows(stream: int | None, *, table: LearnedRows, changed: ChangedRows, num_rows: int, dim: int, count: int, ids: int, place: int, out: int, bad: int) -> None:
    """Rows of a table by id."""

def update_rows(stream: int | None, *, rule: int, table: LearnedRows, first: LearnedRows, second: LearnedRows, num_rows: int, dim: int, count: int, ids: int, place: int, grads: int, before: int, changed: int, rate: float, eps: float, weight_decay: float, share1: float, share2: float) -> None:
    """A step of an optimizer on rows of a table."""

def put_rows(stream: int | None, *, table: LearnedRows, num_rows: int, dim: int, changed: ChangedRows) -> None:
    """Changed rows go to a table."""

class HostTable:
    """Host memory that GPUs read and write in place; see base/host_table.h."""

    def __init__(self, bytes: int) -> None: ...

    def open_to_gpu(self) -> None:
        """After the first writing, before the current GPU reads it."""

    def array(self) -> Annotated[NDArray[numpy.uint8], dict(shape=(None,))]:
        """uint8 [bytes], the memory itself."""

def copy_arrays(stream: int | None, copies: Sequence[tuple[int, int, int, int, int]]) -> None:
    """
    Several arrays at once, (from, to, count, room, fill); see trainer/native/copy_arrays.h.
    """

def transpose_scratch_bytes(stream: int | None, num_edges: int) -> int:
    """How much scratch memory a transposition needs."""

def used_rows(rows: int, num_rows: int, row_bytes: int, stride_bytes: int) -> int:
    """
    How many rows in memory of the CPU there are up to the last one with a byte other than 0.
    """

def max_pieces(num_edges: int) -> int:
    """How many pieces of long rows a reduction may have."""
