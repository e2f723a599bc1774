"""The layer of higher-order graph neural networks: sums of neighbours."""

from torch import nn

from cohort_gnn.nn.sage import SAGERules


class GraphConvRules(SAGERules):
    """What a layer with PyG's parameters and arguments computes, where edges have no weights: GraphSAGE's layer with
    sums, under other names."""

    aggr = "add"
    root_weight, project, normalize = True, False, False
    lin_rel: nn.Module
    lin_root: nn.Module

    @property
    def lin_l(self) -> nn.Module:
        return self.lin_rel

    @property
    def lin_r(self) -> nn.Module:
        return self.lin_root
