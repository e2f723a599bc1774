"""Models of PyG by hops: a layer computes only the rows that the next one reads."""

import torch
from torch import Tensor, nn
from torch_geometric.nn.dense.linear import HeteroDictLinear
from torch_geometric.nn.models.basic_gnn import BasicGNN, TrimToLayer

from cohort_gnn.nn.block import Block, offsets_of
from cohort_gnn.nn.gat import GATRules
from cohort_gnn.nn.gatv2 import GATv2Rules
from cohort_gnn.nn.gcn import GCNRules
from cohort_gnn.nn.inputs import has_hooks, is_plain
from cohort_gnn.nn.operators import is_recorded
from cohort_gnn.nn.sage import SAGERules

_CONTAINERS = (HeteroDictLinear, nn.ModuleDict, nn.ParameterDict)
# What treats each row by itself.
_NORMS = (nn.Identity, nn.LayerNorm)
_ACTIVATIONS = (type(None), nn.ReLU, nn.ELU, nn.LeakyReLU, nn.GELU, nn.SiLU, nn.Sigmoid, nn.Tanh)
_HOOKS = [
    f"_{step}_forward_{when}hooks"
    for step in ("propagate", "message", "aggregate", "message_and_aggregate", "edge_update")
    for when in ("pre_", "")
]


class Trim(TrimToLayer):
    """PyG's module, which gives layer i nodes and edges up to some hop. PyG's layer also computes rows of the last of
    these nodes, which are cut off before layer i + 1. With batches of Cohort's loaders, layers get a Block in place of
    edges, and do not compute them. All rows of the last layer are computed.

    All is as PyG does it where these rows have another effect, or somebody may look at them.
    """

    parts: tuple[nn.ModuleList, nn.ModuleList, nn.Module | None]  # layers, norms, activation; a tuple is no submodule

    def __prepare_scriptable__(self) -> TrimToLayer:
        return TrimToLayer()

    @torch.jit.unused
    def forward(
        self, layer, num_sampled_nodes_per_hop, num_sampled_edges_per_hop, x, edge_index, edge_attr=None
    ) -> tuple:
        """Rows, edges and ``edge_attr`` of a layer; it gets what the layer before has got of them, and its output."""
        nodes, edges = num_sampled_nodes_per_hop, num_sampled_edges_per_hop
        if isinstance(edge_index, Block):
            offsets, source = edge_index.indptr, edge_index.source
        elif layer == 0 and edge_attr is None and self._skips(x, edge_index, nodes, edges):
            offsets, source = offsets_of(edge_index), edge_index[0]
        else:
            offsets, source = None, edge_index
        if offsets is None:
            return super().forward(layer, nodes, edges, x, edge_index, edge_attr)
        hops = len(edges) - layer  # whose edges the layer reads
        num_sources = sum(nodes[: hops + 1])
        num_targets = num_sources if layer == len(self.parts[0]) - 1 else sum(nodes[:hops])
        block = Block(offsets, source[: sum(edges[:hops])], num_sources, num_targets)
        return x if x.shape[0] == num_sources else x[:num_sources], block, edge_attr

    def _skips(self, x, edge_index, nodes: list[int], edges: list[int]) -> bool:
        layers, norms, act = self.parts
        is_plain = isinstance(x, Tensor) and isinstance(edge_index, Tensor) and not torch.compiler.is_compiling()
        if not is_plain or is_recorded() or len(layers) > len(edges):
            return False
        is_whole = (sum(nodes), sum(edges)) == (x.shape[0], edge_index.shape[1])
        by_row = isinstance(act, _ACTIVATIONS) and all(type(norm) in _NORMS for norm in norms)
        return is_whole and by_row and all(map(_takes_blocks, layers)) and not any(map(_has_hooks, (*norms, act)))


def trim_by_hops(model: nn.Module) -> None:
    """Has PyG's models that are in ``model``, or are it, use Trim."""
    for module in model.modules():
        is_plain = isinstance(module, BasicGNN) and type(module).forward is BasicGNN.forward
        if is_plain and type(module._trim) in (Trim, TrimToLayer) and module.jk_mode is None:
            module._trim.__class__ = Trim
            module._trim.parts = module.convs, module.norms, module.act


def has_message_hooks(layer: nn.Module) -> bool:
    """Whether a layer of PyG's has hooks on the steps of its messages."""
    own = vars(layer)
    return any(own[name] for name in _HOOKS)


def has_plain_parts(layer: nn.Module) -> bool:
    """Whether the rules may read the weights of the linear layers in a layer; the ``nn`` of a GINConv they call."""
    lins = [(name, part) for name, part in layer.named_children() if name not in ("activation", "aggr_module", "nn")]
    lins = [(name, part) for name, lin in lins for part in (lin.modules() if isinstance(lin, _CONTAINERS) else (lin,))]
    return all(
        isinstance(lin, _CONTAINERS) or is_plain(lin, name not in layer.biasless) and not has_hooks(lin)
        for name, lin in lins
    )


def _takes_blocks(layer: nn.Module) -> bool:
    is_ours = isinstance(layer, SAGERules | GCNRules | GATRules | GATv2Rules)
    if not is_ours or layer.limit_of(layer):
        return False
    return not (layer.explain or has_message_hooks(layer) or _has_hooks(layer)) and has_plain_parts(layer)


def _has_hooks(module: nn.Module | None) -> bool:
    return module is not None and bool(module._forward_hooks or module._forward_pre_hooks or module._backward_hooks)
