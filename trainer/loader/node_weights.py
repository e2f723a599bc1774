"""Weights of nodes, by which negatives are drawn, as the sampler has them: integers (NodeWeights in the sampler)."""

from collections.abc import Iterator
from decimal import Decimal, localcontext

import numpy as np
import torch

from cohort_gnn.base.errors import CohortError

SUM_BITS = 62  # of all weights together
PIECE = 1 << 20  # weights that are converted at once
DIGITS = 25  # of powers, before they become float64


def weight_sums(
    place: str, weights, num_nodes: int, node_type: str = "", order: np.ndarray | None = None
) -> np.ndarray:
    """int64 [num_nodes], the sums of the weights of nodes 0 .. i.

    The unit is a power of 2, such that all weights together have 2^61 to 2^62 units. Fractions of a unit are cut off,
    but a weight above 0 has at least one unit. The result is the same on every machine.

    Args:
        place: what errors call the weights.
        weights: a tensor or an array of numbers [num_nodes].
        node_type: name of the type of the nodes, for errors.
        order: int64 [num_nodes], the nodes in another order, in which the sums are.

    Raises:
        CohortError: other than one number for each node, a number below 0 or not finite, or no number above 0.
    """
    values = _checked(place, weights, num_nodes, node_type)
    values = values if order is None else values[order]
    _, exponent = np.frexp(np.float64(values.max()))
    total = np.float64(0)  # in units of the largest weight, about; np.cumsum adds in order, np.sum does not
    for piece in _pieces(values):
        total = np.cumsum(np.append(total, np.ldexp(piece, -exponent)))[-1]
    shift = SUM_BITS - int(np.frexp(total)[1]) - int(exponent)
    sums, end, last = np.empty(num_nodes, np.int64), 0, 0
    for piece in _pieces(values):
        units = np.ldexp(piece, shift).astype(np.int64)
        np.maximum(units, piece > 0, out=units)
        begin, end = end, end + len(piece)
        sums[begin:end] = np.cumsum(units) + last
        last = sums[end - 1]
    return sums


def degree_weights(indptr: np.ndarray, power: str) -> np.ndarray:
    """float64 [nodes]: the in-degree of each node to a power, a decimal number; 0 for nodes without in-neighbours.

    The powers are computed in decimal numbers: those of numpy and of C libraries depend on the processor.
    """
    degrees = np.diff(indptr)
    by_degree = np.zeros(degrees.max(initial=0) + 1)
    with localcontext(prec=DIGITS):
        for degree in np.flatnonzero(np.bincount(degrees)):
            by_degree[degree] = float(Decimal(int(degree)) ** Decimal(power)) if degree else 0.0
    return by_degree[degrees]


def _pieces(weights: np.ndarray) -> Iterator[np.ndarray]:
    """float64, one part after the other."""
    return (weights[begin : begin + PIECE].astype(np.float64) for begin in range(0, len(weights), PIECE))


def _checked(place: str, weights, num_nodes: int, node_type: str) -> np.ndarray:
    wanted = f"[{num_nodes}] numbers, a weight for each node{node_type and f' of type {node_type}'}"
    try:
        array = torch.as_tensor(weights).cpu()
        array = (array.float() if array.dtype == torch.bfloat16 else array).numpy()
    except (TypeError, ValueError, RuntimeError) as error:
        raise CohortError(place, wanted, repr(weights)[:80], str(error)) from error
    if array.shape != (num_nodes,) or array.dtype.kind not in "biuf":
        raise CohortError(place, wanted, f"{array.dtype} {list(array.shape)}")
    begin = 0
    for piece in _pieces(array):
        if len(wrong := np.flatnonzero(~(np.isfinite(piece) & (piece >= 0)))):
            actual = f"{piece[wrong[0]]:g} of node {begin + wrong[0]}"
            raise CohortError(
                place, "weights that are finite and at least 0", actual, "a node of weight 0 is never drawn"
            )
        begin += len(piece)
    if not array.any():
        raise CohortError(place, "at least one weight above 0", "none", "leave the weights out to draw uniformly")
    return array


def nodes_by_time(times: np.ndarray) -> np.ndarray:
    """int64 [2, nodes]: the nodes in the order of their times, and the time of each node; NodeTimes in the sampler."""
    return np.stack([np.argsort(times, kind="stable"), times])


def order_of(by_time: np.ndarray | None) -> np.ndarray | None:
    """int64 [nodes] of what `nodes_by_time` makes."""
    return None if by_time is None else by_time[0]
