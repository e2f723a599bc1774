from collections.abc import Sequence
from typing import Annotated

import numpy
from numpy.typing import NDArray


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

LEAKY_RELU: int = 2

ADAGRAD: int = 0

ADAM: int = 1

class BlockRef:
    """Edges grouped by row: addresses, see trainer/nn/native/block.h."""

    def __init__(self, *, offsets: int, num_offsets: int, index: int, edge: int, num_edges: int, num_rows: int, skip_self: bool, own_pieces: bool) -> None: ...

class RowDrop:
    """ReLU and dropout; see trainer/nn/native/sum_rows.h."""

    def __init__(self, *, use: int, p: float, key: int, key_at: int, kept: int) -> None: ...

def sum_rows(stream: int | None, *, block: BlockRef, dtype: int, out_dtype: int, dim: int, x: int, x_stride: int, own_use: int, own: int, own_stride: int, num_own: int, heads: int, edge_factor: int, index_factor: int, own_factor: int, row_factor: int, mean: bool, out: int, out_stride: int, inverse_count: int, partial: int, drop: RowDrop, row_index: int, own_row_index: int) -> None:
    """
    Gathers and sums rows; see trainer/nn/native/sum_rows.h. `stream`: torch's, None on the CPU; arrays: addresses.
    """

def gather_rows(stream: int | None, *, dtype: int, out_dtype: int, num_rows: int, dim: int, x: int, x_stride: int, row_index: int, out: int) -> None:
    """Rows by index; see trainer/nn/native/gather_rows.h."""

def transpose(stream: int | None, *, block: BlockRef, num_columns: int, offsets: int, index: int, edge: int, scratch: int, scratch_bytes: int) -> None:
    """Exchanges rows and columns; see trainer/nn/native/transpose.h."""

def drop(stream: int | None, *, dtype: int, activation: int, size: int, p: float, key: int, key_at: int, x: int, out: int) -> None:
    """Activation and dropout; see trainer/nn/native/activation.h."""

def drop_grad(stream: int | None, *, dtype: int, activation: int, size: int, p: float, y: int, grad: int, out: int) -> None:
    """Their gradient."""

class HeadRows:
    """Rows of heads; see trainer/nn/native/head_rows.h."""

    def __init__(self, *, data: int, row_stride: int, head_stride: int) -> None: ...

class Bend:
    """What products of rows become; see trainer/nn/native/head_rows.h."""

    def __init__(self, *, att: int, edge: int, own_edge: int, slope: float) -> None: ...

class EdgeScores:
    """Scores of edges; see trainer/nn/native/attention.h."""

    def __init__(self, *, source: int, source_stride: int, target: int, target_stride: int, slope: float, edge: int, own_edge: int) -> None: ...

def spread_rows(stream: int | None, *, block: BlockRef, dtype: int, out_dtype: int, dim: int, heads: int, x: int, x_stride: int, weights: int, own_weights: int, num_own: int, first_row: int, out: int, partial: int) -> None:
    """Sums rows that heads share; see trainer/nn/native/head_rows.h."""

def fold_rows(stream: int | None, *, block: BlockRef, dtype: int, dim: int, heads: int, x: int, x_rows: int, weights: int, own_weights: int, num_own: int, out: int, partial: int) -> None:
    """The gradient of shared rows."""

def dot_rows(stream: int | None, *, block: BlockRef, dtype: int, grad_dtype: int, dim: int, heads: int, grad: HeadRows, x: HeadRows, num_own: int, first_row: int, dots: int, own_dots: int, bend: Bend) -> None:
    """The gradient of the weights of rows."""

def attention(stream: int | None, *, block: BlockRef, dtype: int, dim: int, scores: EdgeScores, num_own: int, weights: int, own_weights: int, largest: int, sums: int, partial: int) -> None:
    """Softmaxes over the edges of rows; see trainer/nn/native/attention.h."""

def attention_grad(stream: int | None, *, block: BlockRef, dtype: int, dim: int, scores: EdgeScores, num_own: int, weights: int, own_weights: int, grads: int, own_grads: int, target_grads: int, target_grads_stride: int, sums: int, partial: int) -> None:
    """Their gradient."""

def joined_rows(stream: int | None, *, block: BlockRef, dtype: int, dim: int, heads: int, own: int, own_stride: int, x: int, x_stride: int, edge: int, own_edge: int, slope: float, num_own: int, factor: int, own_factor: int, scale: int, other: int, other_stride: int, slopes: int, bent: int, edge_grads: int, own_edge_grads: int, partial: int) -> None:
    """
    Sums of leaky_relu over edges, or its slopes; see trainer/nn/native/joined_rows.h.
    """

def max_rows(stream: int | None, *, block: BlockRef, dtype: int, dim: int, x: int, x_stride: int, out: int, ties: int, partial: int) -> None:
    """The largest rows of edges; see trainer/nn/native/max_rows.h."""

def max_rows_grad(stream: int | None, *, block: BlockRef, dtype: int, dim: int, x: int, x_stride: int, largest: int, shares: int, out: int, partial: int) -> None:
    """Their gradient."""

def indexed_scores(stream: int | None, *, dtype: int, count: int, dim: int, width: int, rows: int, row_index: int, vectors: int, out: int) -> None:
    """
    Rows of 16 bits times a few vectors; see trainer/nn/native/indexed_scores.h.
    """

def indexed_scores_grad(stream: int | None, *, dtype: int, count: int, dim: int, width: int, parts: int, rows: int, row_index: int, grad: int, partial: int) -> None:
    """The gradient of the vectors."""

most_scores: int = 64

score_rows: int = 128

score_columns: int = 32

def num_score_parts(count: int, dim: int) -> int:
    """Parts in `partial` of indexed_scores_grad()."""

def has_products() -> bool:
    """Whether the current GPU has what product() and product_grad() need."""

def product(stream: int | None, *, num_rows: int, depth: int, width: int, rows: int, weight: int, bias: int, out: int) -> None:
    """Many rows times a matrix, float32; see trainer/nn/native/product.h."""

def product_grad(stream: int | None, *, num_rows: int, depth: int, width: int, grad: int, rows: int, out: int, column_sums: int, partial: int) -> None:
    """The gradient of the matrix, and that of a bias."""

def num_product_parts(num_rows: int, depth: int, width: int) -> int:
    """Parts in `partial` of product_grad()."""

max_product_depth: int = 256

class LearnedRows:
    """A table of learned rows; see trainer/nn/native/learned_rows.h."""

    def __init__(self, *, rows: int, hot: int, hot_bits: int, hot_before: int) -> None: ...

class ChangedRows:
    """Rows on their way to a table."""

    def __init__(self, *, count: int, ids: int, row_index: int, rows: int) -> None: ...

def take_rows(stream: int | None, *, table: LearnedRows, changed: ChangedRows, num_rows: int, dim: int, count: int, ids: int, row_index: int, out: int, bad: int) -> None:
    """Rows of a table by id."""

def update_rows(stream: int | None, *, rule: int, table: LearnedRows, first: LearnedRows, second: LearnedRows, num_rows: int, dim: int, count: int, ids: int, row_index: int, grads: int, before: int, changed: int, rate: float, eps: float, weight_decay: float, share1: float, share2: float) -> None:
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
    Several arrays at once, (from, to, count, room, fill); see trainer/nn/native/copy_arrays.h.
    """

def totals(stream: int | None, *, dtype: int, size: int, columns: int, parts: Sequence[int], bias: int, out: int) -> None:
    """Sums of arrays, element by element; see trainer/nn/native/totals.h."""

MOST_PARTS: int = 8

def transpose_scratch_bytes(stream: int | None, num_edges: int) -> int:
    """How much scratch memory a transposition needs."""

def used_rows(rows: int, num_rows: int, row_bytes: int, stride_bytes: int) -> int:
    """
    How many rows in memory of the CPU there are up to the last one with a byte other than 0.
    """

def max_pieces(num_edges: int) -> int:
    """How many pieces of long rows a reduction may have."""
