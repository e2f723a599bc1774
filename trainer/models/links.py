"""What scores pairs of nodes by the rows that a model makes of them, for models that predict links."""

from itertools import accumulate

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cohort_gnn.base.errors import CohortError
from cohort_gnn.spec.graph import ONE_OF_EACH, GraphTypes


class LinkDecoder(nn.Module):
    """The score of a source and a target, by the rows of both.

    Args:
        kind: "dot": the sum of the products of both rows' columns; "distmult": the same with a learned weight for each
            column (Yang et al., ICLR 2015, of one relation), all 1 at the beginning; "mlp": two layers with ReLU in
            between, of the products of the columns.
        width: columns of the rows.
    """

    def __init__(self, kind: str, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width)) if kind == "distmult" else None
        self.layers = None
        if kind == "mlp":
            self.layers = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))
        elif kind not in ("dot", "distmult"):
            raise CohortError("--decoder", "dot, distmult or mlp", kind)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """float [...] of rows float [..., width]."""
        products = source * target
        if self.layers is not None:
            return self.layers(products).squeeze(-1)
        return (products if self.weight is None else products * self.weight).sum(dim=-1)


def scores_of_links(decoder: nn.Module, rows: Tensor, places: Tensor) -> Tensor:
    """float [n, 1 + K]: of the link of each source first, then of its negatives.

    Args:
        rows: float [nodes, width].
        places: int64 [n, 2 + K] among the rows: source, target, and K other targets.
    """
    # Its gradient is the same each time, unlike that of rows[places] on the CPU.
    endpoints = F.embedding(places, rows)
    return decoder(endpoints[:, :1], endpoints[:, 1:])


def links_of_slot(slot, num_negatives: int, types: GraphTypes = ONE_OF_EACH) -> Tensor:
    """int64 [pairs, 2 + num_negatives], places among the batch's seeds, of a batch of triplets. Seeds of several types
    stand by type."""
    endpoints, num_pairs = slot.endpoints, slot.num_inputs
    links, others = endpoints[: 2 * num_pairs], endpoints[2 * num_pairs :]
    links = torch.cat([links.view(2, num_pairs).T, others.view(num_pairs, num_negatives)], dim=1)
    relation = types.relation
    if relation is None:
        return links
    seeds = (per_hop[0] for per_hop in slot.nodes_of_types)
    first = dict(zip(types.counts, accumulate(seeds, initial=0), strict=False))
    source, target = first[relation[0]], first[relation[2]]
    return links + links.new_tensor([source, *[target] * (1 + num_negatives)])
