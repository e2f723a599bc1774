"""How old nodes are at the time of their seeds, as rows that a model adds to those of their features."""

import math

import torch
from torch import Tensor, nn
from torch_geometric.nn.module_dict import ModuleDict

from cohort_gnn.base.errors import CohortError

NUM_WAVES = 16
DECADES = 5.0  # from the shortest wave to the longest one
TOO_OLD = 2**62  # the age of a node that was always there, at a time before 0


class AgeRows(nn.Module):
    """A linear part of the sines and cosines of ages, for each node type.

    The longest wave is four times the greatest age in training, so that no two ages up to twice this one have the same
    sines and cosines; the others are shorter by a constant factor each, as in a transformer's positional encoding
    (Vaswani et al., NeurIPS 2017) and in RelBench's encoding of relative times.

    Args:
        spans: of each node type, the greatest age in training, as GraphTypes.age_spans has it.
        width: columns of rows.
    """

    def __init__(self, spans: dict[str, int], width: int):
        super().__init__()
        self.spans = dict(spans)
        self.lins = ModuleDict({name: nn.Linear(2 * NUM_WAVES, width, bias=False) for name in spans})
        waves = torch.logspace(0, DECADES, NUM_WAVES, dtype=torch.float64) / 4  # in the span
        self.register_buffer("waves", waves, persistent=False)

    def forward(self, ages: dict[str, Tensor] | None) -> dict[str, Tensor]:
        """Rows float [nodes, width] by node type; of a negative age zeros.

        Args:
            ages: int64 [nodes] of each node type of ``spans``: the time of a node's seed less its own time.

        Raises:
            CohortError: there are none of a node type.
        """
        if lacking := [name for name in self.spans if name not in (ages or {})]:
            hint = "ages[name] = batch[SEEDS].seed_time[batch[name].batch] - batch[name].time: docs/how-to/databases.md"
            raise CohortError("ages", f"ages of nodes, of {', '.join(lacking)}", "none", hint)
        assert ages is not None
        return {name: lin(self._encoded(ages[name], self.spans[name])) for name, lin in self.lins.items()}

    def _encoded(self, ages: Tensor, span: int) -> Tensor:
        turns = (ages.double() / span).unsqueeze(
            1
        ) * self.waves.double()  # float32 would miss by 0.01 of the shortest wave
        phases = (2 * math.pi * (turns - turns.round())).float()
        is_known = ((ages >= 0) & (ages < TOO_OLD)).unsqueeze(1)
        return torch.cat([phases.sin(), phases.cos()], dim=1) * is_known
