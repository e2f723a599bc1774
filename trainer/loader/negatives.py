"""The negatives that the arguments of a LinkNeighborLoader ask for."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from msgspec import Meta
from torch_geometric.sampler import NegativeSampling

from cohort_gnn.base.errors import CohortError
from cohort_gnn.spec.types import checked
from cohort_gnn.trainer.loader.node_weights import order_of, weight_sums

MOST_NEGATIVES = 10_000  # for a pair
IN_BATCH = "in_batch"  # a mode that PyG has not
Amount = Annotated[float, Meta(gt=0, le=MOST_NEGATIVES, description=f"a number in (0, {MOST_NEGATIVES}]")]


Count = Annotated[
    int, Meta(ge=1, le=MOST_NEGATIVES, description=f"an integer in [1, {MOST_NEGATIVES}], with {IN_BATCH}")
]


@dataclass(frozen=True, eq=False)
class Negatives:
    """What is drawn besides the pairs.

    Attributes:
        mode, amount: the ``negative_mode`` and ``negatives`` of OfPairs.
        src_weight, dst_weight: of the nodes that sources and targets are drawn from; None: they are drawn uniformly.
    """

    mode: str = "none"
    amount: float = 0.0
    src_weight: Any = None
    dst_weight: Any = None

    def sums(
        self,
        num_nodes: Sequence[int],
        types: Sequence[str] = ("", ""),
        times: Sequence[np.ndarray | None] = (None, None),
    ) -> list[np.ndarray | None]:
        """int64 [nodes], the sums of the weights of sources and of those of targets; None: there are none.

        Args:
            num_nodes: of the type of sources, and of that of targets.
            types: the names of both; empty: the graph has one type.
            times: int64 [2, nodes] of both, as `nodes_by_time` makes them: the sums are in this order; None: in that of
                the nodes.

        Raises:
            CohortError: weights that nodes cannot be drawn by.
        """
        weights = {"src_weight": self.src_weight, "dst_weight": self.dst_weight}
        arguments = zip(weights.items(), num_nodes, types, times, strict=True)
        return [
            None if array is None else weight_sums(f"neg_sampling: {name}", array, count, node_type, order_of(by_time))
            for (name, array), count, node_type, by_time in arguments
        ]


def negatives_of(neg_sampling, ratio: float | None) -> Negatives:
    """What the two arguments ask for.

    Raises:
        CohortError: it is not offered.
    """
    expected = '"binary", "triplet", "in_batch" or a torch_geometric.sampler.NegativeSampling'
    if isinstance(neg_sampling, Negatives):  # of another loader
        return neg_sampling
    if ratio:
        if neg_sampling is not None:
            raise CohortError("neg_sampling_ratio", "None beside neg_sampling", str(ratio))
        neg_sampling = {"mode": "binary", "amount": checked("neg_sampling_ratio", ratio, Amount)}
    if neg_sampling is None:
        return Negatives()
    asked = {"mode": neg_sampling} if isinstance(neg_sampling, str) else neg_sampling
    if isinstance(asked, dict) and asked.get("mode") == IN_BATCH:
        return _in_batch(asked)
    try:
        how = NegativeSampling.cast(asked)
        mode, amount = how.mode.value, checked("neg_sampling: amount", float(how.amount), Amount)
    except (AttributeError, TypeError, ValueError) as error:
        raise CohortError("neg_sampling", expected, repr(neg_sampling)[:80], str(error)) from error
    if mode == "triplet" and how.src_weight is not None:
        hint = "the source of a negative is that of its pair: leave src_weight out"
        raise CohortError("neg_sampling: src_weight", "None, with triplets", "weights", hint)
    return Negatives(mode, amount, how.src_weight, how.dst_weight)


def _in_batch(how: dict) -> Negatives:
    if others := sorted(map(str, how.keys() - {"mode", "amount"})):
        hint = "the targets are those of the batch's pairs: leave the others out"
        raise CohortError("neg_sampling", f"mode and amount, with {IN_BATCH}", ", ".join(others), hint)
    return Negatives(IN_BATCH, float(checked("neg_sampling: amount", how.get("amount", 1), Count)))
