"""What a training step of a built-in model takes, computed from a batch and the rates of a GPU."""

from collections.abc import Iterator
from typing import NamedTuple

from cohort_gnn.base.errors import CohortError
from cohort_gnn.cache.gpu_rates import GpuRates
from cohort_gnn.launch.plan.shape import ExpectedBatch
from cohort_gnn.spec.models import ONE_TYPE, listed
from cohort_gnn.spec.run import RunSpec

FLOAT_BYTES = 4


class Layer(NamedTuple):
    """A layer's work on a batch.

    Attributes:
        rows, depth, columns: of its products of matrices, [rows, depth] times [depth, columns].
        products: forward and backward.
        row_values: read along edges and written beside products.
        edge_heads: edges times heads of attention.
    """

    rows: float
    depth: int
    columns: int
    products: int
    row_values: float
    edge_heads: float

    def seconds(self, rates: GpuRates) -> float:
        out_bytes = FLOAT_BYTES * self.rows * self.columns
        operations = 2 * self.rows * self.depth * self.columns
        product = out_bytes / rates.product_bytes.value + operations / rates.product_operations.value
        rows = FLOAT_BYTES * self.row_values / rates.row_sums.value
        return self.products * product + rows + self.edge_heads * rates.edge_head_seconds.value


def layers_of(spec: RunSpec, batch: ExpectedBatch, in_dim: int, out_dim: int) -> Iterator[Layer]:
    """The layers, the first with the most rows.

    The gradient of the first layer's input is not needed. SAGE, GraphConv and GCN sum rows, and multiply the sums of
    targets (and SAGE and GraphConv the rows of the targets); the gradient of sums is written for all sources, beside
    the activation, which is read again. GAT multiplies the rows of all sources; what it does along edges takes as long
    for rows of 64 and of 256 columns.

    Raises:
        CohortError: the work of the model's layers is not known.
    """
    kind, last = spec.model_kind, len(spec.fanout) - 1
    if spec.model not in ONE_TYPE or kind.parameters is None:
        raise CohortError(
            "--model", listed(ONE_TYPE), spec.model, "--step-ms M says what a step of another model takes"
        )
    dims = [in_dim] + [spec.hidden] * last + [out_dim]
    for i, depth in enumerate(dims[:-1]):
        hops = len(batch.edges) - i
        sources, targets, edges = sum(batch.nodes[: hops + 1]), sum(batch.nodes[:hops]), sum(batch.edges[:hops])
        products = 2 if i == 0 else 3
        if kind.has_heads:
            columns = dims[i + 1] * (spec.heads if i == last else 1)
            yield Layer(sources, depth, columns, products, 0, (edges + targets) * spec.heads)  # with loops
        else:
            beside = targets if i == 0 else 3 * sources
            yield Layer(targets, kind.parameters[0] * depth, dims[i + 1], products, (edges + beside) * depth, 0)


def seconds_of_step(layers: list[Layer], rates: GpuRates) -> float:
    """Of a whole batch, in float32."""
    return rates.step_seconds.value + sum(layer.seconds(rates) for layer in layers)


def bytes_of_step(layers: list[Layer]) -> int:
    """Of what layers keep for the backward pass, and of gradients as wide, which GAT makes bit by bit."""
    return int(FLOAT_BYTES * sum(layer.rows * layer.columns * (1 if layer.edge_heads else 2) for layer in layers))
