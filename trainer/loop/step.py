"""A training step: forward, loss, backward and optimizer, and the sums that the loss of an epoch is made of."""

import inspect
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from cohort_gnn.nn.inputs import PlacedRows
from cohort_gnn.nn.row_optimizers import RowAdam
from cohort_gnn.spec.graph import GraphTypes
from cohort_gnn.spec.run import TrainerSpec
from cohort_gnn.trainer.loop.graphs import ReplayedWork, StepGraphs
from cohort_gnn.trainer.loop.typed_graphs import TypedStepGraphs
from cohort_gnn.trainer.models.links import links_of_slot, scores_of_links
from cohort_gnn.trainer.models.own import callable_of
from cohort_gnn.trainer.models.sampled import input_dtypes, model_input
from cohort_gnn.trainer.models.targets import CLASSES, Targets, targets_of
from cohort_gnn.trainer.ranks import Ranks, StepSums
from cohort_gnn.trainer.source import AllRows, blocks_of, edges_by_type, edges_of, rows_of, tables_of


class Adam(torch.optim.Adam):
    """torch's, without what torch.compile needs around its methods: that imports seconds' worth of packages."""

    add_param_group = inspect.unwrap(torch.optim.Adam.add_param_group)
    state_dict = inspect.unwrap(torch.optim.Adam.state_dict)
    load_state_dict = inspect.unwrap(torch.optim.Adam.load_state_dict)
    zero_grad = inspect.unwrap(torch.optim.Adam.zero_grad)
    step = torch.no_grad()(inspect.unwrap(torch.optim.Adam.step))


def adam(model: torch.nn.Module, device: torch.device, lr: float, weight_decay: float = 0.0) -> Adam:
    """The optimizer of all runs: on a GPU in one kernel, which a CUDA graph can hold."""
    on_gpu = device.type == "cuda"
    return Adam(model.parameters(), lr=lr, weight_decay=weight_decay, fused=on_gpu, capturable=on_gpu)


class Scores:
    """A model's scores of the seeds of batches.

    Args:
        model: a SampledGNN, or what wraps one.
        amp: under autocast to bfloat16.
        keep_half: features of 16 bits go in as they are under autocast.
        all_rows: [any, dim], of which slots name rows (``place``), of several node types a list; None: slots have rows.
        types: of a graph that has several; the model is a TypedGNN then, and takes all of a batch by type.

    Attributes:
        spare_tables: memory of rows by node type that a batch may have until the next one, as tables_of() takes it.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        amp: bool = False,
        keep_half: bool = False,
        all_rows: AllRows = None,
        types: GraphTypes | None = None,
    ):
        self.model, self.all_rows, self.types = model, all_rows, types
        self.spare_tables: Callable[[], Sequence[Tensor | None]] = tuple
        self._amp, self._keep_half = amp, amp and keep_half
        is_float = isinstance(all_rows, Tensor) and all_rows.dtype == torch.float32
        self.takes_places = is_float and getattr(model, "takes_placed_blocks", False)

    def is_placed(self, rows: Tensor) -> bool:
        """Whether a model of several node types takes rows that batches name as PlacedRows."""
        reads_in_place = getattr(self.model, "reads_in_place", None)
        return reads_in_place is not None and rows.dtype in input_dtypes(self._keep_half) and reads_in_place(rows)

    def of_slot(self, slot) -> Tensor:
        """float32 [seeds, num_classes]; a row of a node's for each seed where links are predicted."""
        x, edges, *others = self.inputs_of(slot)
        return self(x, edges, slot.num_seeds, *others)

    def inputs_of(self, slot) -> tuple:
        """What the model takes of the batch in a slot: features, edges and, where edges are a tensor, sizes."""
        if self.types:
            memory = self.spare_tables()
            return typed_inputs_of(slot, self.types, self.all_rows, self.is_placed, self._keep_half, memory)
        if self.takes_places:
            return self.all_rows, blocks_of(slot)
        x = rows_of(slot, self.all_rows)
        weights, edge_attr = getattr(slot, "edge_weight", None), getattr(slot, "edge_attr", None)
        of_edges: tuple[Tensor | None, ...] = () if weights is None and edge_attr is None else (weights,)
        of_edges += () if edge_attr is None else (model_input(edge_attr),)
        return x, edges_of(slot), slot.num_sampled_nodes, slot.num_sampled_edges, *of_edges

    def __call__(self, x, edges, num_seeds: int | None, *sizes) -> Tensor:
        """float32 [num_seeds, num_classes], or of all nodes of which the model tells; for the other arguments see
        SampledGNN, or TypedGNN."""
        device = (x if isinstance(x, Tensor) else next(iter(x.values()))).device
        x = _model_input(x, self._keep_half)
        with torch.autocast(device.type, torch.bfloat16, enabled=self._amp):
            scores = self.model(x, edges, *sizes)
            if isinstance(scores, dict):  # rows of two node types, whose seeds stand by type
                scores = torch.cat(list(scores.values()))
        return scores[:num_seeds].float()


def _model_input(x, keep_half: bool):
    """model_input() of a tensor, and of features by type; ids and PlacedRows stay."""
    if isinstance(x, dict):
        return {name: _model_input(rows, keep_half) for name, rows in x.items()}
    return x if isinstance(x, PlacedRows) or x.dtype == torch.int64 else model_input(x, keep_half)


def typed_inputs_of(
    slot,
    types: GraphTypes,
    all_rows: AllRows = None,
    is_placed: Callable[[Tensor], bool] | None = None,
    keep_half: bool = False,
    memory: Sequence[Tensor | None] = (),
) -> tuple:
    """What a model takes of the batch in a slot: features or else ids, edges, and sizes by hop, by type.

    Args:
        is_placed: as Scores has it; None: all features are gathered.
        keep_half: as model_input() takes it.
        memory: as tables_of() takes it.
    """
    nodes = dict(zip(types.counts, slot.nodes_of_types, strict=True))
    ids, x = slot.n_id.split([sum(per_hop) for per_hop in nodes.values()]), {}
    for name, own_ids, table in zip(nodes, ids, tables_of(slot, all_rows, is_placed, memory), strict=True):
        x[name] = own_ids if table is None else _model_input(table, keep_half)
    edges = dict(zip(types.edge_types, slot.edges_of_relations, strict=True))
    tables = {name: slot.edge_table(number) for number, name in enumerate(types.edge_types) if types.edge_dims}
    of_edges = {name: model_input(table) for name, table in tables.items() if table is not None}
    return x, edges_by_type(slot, types), nodes, edges, of_edges


class TrainStep:
    """Steps of one model.

    Args:
        scores: of the model that is trained.
        optimizer: from adam().
        device: the trainer's.
        graphs_of: seeds of batches that are run as CUDA graphs (see graphs.py); None: none are.
        targets: what the model learns.
        sums: with the other ranks; None: this one is alone.
        clip_norm: of all gradients; larger ones are scaled down to it.
        rows: the optimizer of learnable rows; None: the model has none.
        links: what scores links, and the number of negatives of each; None: batches are not of links.

    Attributes:
        loss_sum, num_labelled: [] on the device, sums over the steps since reset(): of the loss over this rank's
            labelled seeds, and of the labelled seeds of all ranks; for several labels a seed, of labels; of links.
    """

    def __init__(
        self,
        scores: Scores,
        optimizer: torch.optim.Optimizer,
        device: torch.device,
        graphs_of: int | None = None,
        targets: Targets = CLASSES,
        sums: StepSums | None = None,
        clip_norm: float | None = None,
        rows: RowAdam | None = None,
        links: tuple[torch.nn.Module, int] | None = None,
    ):
        self._clip_norm, self.rows, self._links = clip_norm, rows, links
        self.scores, self._optimizer, self._targets, self._sums = scores, optimizer, targets, sums
        self.loss_sum = torch.zeros((), device=device)
        self.num_labelled = torch.zeros((), device=device)
        self._graphs_of, self._device = graphs_of, device
        has_rows = scores.all_rows is not None  # batches name them, in the memory of a GPU
        self._graphs = self._graphs_on(device) if graphs_of and has_rows else None
        if sums and graphs_of:
            sums.zeros_for_unused = True
        self._finish = ReplayedWork(self._take_sums, device) if graphs_of else self._take_sums

    def _graphs_on(self, device: torch.device) -> StepGraphs | TypedStepGraphs:
        scores = self.scores
        if scores.types:
            graphs = TypedStepGraphs(self._run, device, scores.types, scores.all_rows, scores.is_placed)
            scores.spare_tables = graphs.tables
            return graphs
        return StepGraphs(self._run, device, scores.all_rows, scores.takes_places)

    def forget_graphs(self) -> None:
        """Gives back the memory of CUDA graphs; the next steps make new ones."""
        if self._graphs:
            self._graphs = self._graphs_on(self._device)

    def reset(self, loss_sum: float = 0.0, num_labelled: float = 0.0) -> None:
        """The sums begin anew, or with those of earlier steps."""
        self.loss_sum.fill_(loss_sum)
        self.num_labelled.fill_(num_labelled)

    def __call__(self, slot) -> None:
        """The step on the batch in a slot; all of it is on the current stream, or done."""
        if self._graphs and slot.num_seeds == self._graphs_of:
            self._graphs(slot)
        else:
            x, edges, *others = self.scores.inputs_of(slot)
            y = links_of_slot(slot, self._links[1], self.scores.types) if self._links else slot.y[: slot.num_seeds]
            self._run(x, edges, y, *others)
        if self._sums:
            self._sums.add_up()
            self._finish(self._sums)

    def _run(self, x, edges, y: Tensor, *sizes) -> None:
        """What a graph replays: the step, or, with other ranks, what comes before their sums.

        Args: those of Scores, with the seeds' labels among them.
        """
        self._optimizer.zero_grad(set_to_none=True)
        if self.rows:
            self.rows.zero_grad()
        labelled = self._targets.count(y)
        if self._links:  # of which y says the places of their nodes among the seeds
            scores = scores_of_links(self._links[0], self.scores(x, edges, None, *sizes), y)
        else:
            scores = self.scores(x, edges, y.shape[0], *sizes)
        loss_sum = self._targets.loss_sum(scores, y)
        if self._sums:
            loss_sum.backward()
            self._sums.take(labelled)
        else:
            (loss_sum / labelled.clamp(min=1)).backward()
            self._update()
            self.num_labelled += labelled
        self.loss_sum += loss_sum.detach()

    def _take_sums(self, sums: StepSums) -> None:
        """What another graph replays: the step with what the ranks have added up."""
        sums.give()
        if self.rows:
            self.rows.exchange(sums.labelled.clamp(min=1))
        self._update()
        self.num_labelled += sums.labelled

    def _update(self) -> None:
        """The optimizer's step on the gradients that are there."""
        if self._clip_norm is not None:
            parameters = [each for group in self._optimizer.param_groups for each in group["params"]]
            parameters += self.rows.read_rows() if self.rows else []
            torch.nn.utils.clip_grad_norm_(parameters, self._clip_norm)
        self._optimizer.step()
        if self.rows:
            self.rows.step()


def scores_of(options: TrainerSpec, model: torch.nn.Module, all_rows: AllRows = None) -> Scores:
    """Those of a model that `model_of` made of these options."""
    is_fused = options.layers == "cohort" and not options.has_own_model
    called = model if options.types else callable_of(model, options.num_classes)
    return Scores(called, options.amp, is_fused, all_rows, options.types)


def step_of(
    options: TrainerSpec,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    device: torch.device,
    all_rows: AllRows = None,
    ranks: Ranks | None = None,
    sums: StepSums | None = None,
) -> TrainStep:
    """Steps of a model that `model_of` made of these options; without ``ranks`` and ``sums`` without other ranks."""
    reads_edges = options.edge_weights or (options.edge_dim and not options.types)
    takes_tensors = options.layers == "pyg" or reads_edges or options.has_own_model
    # Means of rows would count those that a batch lacks; learned rows and seeds of links differ in number.
    is_typed_otherwise = options.types and (options.norm == "batch" or model.embeddings is not None)
    is_otherwise = takes_tensors or is_typed_otherwise or options.task == "link"
    has_graphs = options.cuda_graphs and device.type == "cuda" and not is_otherwise
    graphs_of = options.batch_size if has_graphs else None
    scores, rows = scores_of(options, model, all_rows), None
    if options.types and model.embeddings is not None:
        group = optimizer.param_groups[0]
        of_dense = {name: group[name] for name in ("lr", "betas", "eps", "weight_decay")}
        rows = RowAdam(model.embeddings.values(), **of_dense)
        if ranks:
            rows.gather = ranks.gather_rows
    targets = targets_of(options.targets, options.loss)
    links = (model.link_decoder, options.negatives) if options.task == "link" else None
    return TrainStep(scores, optimizer, device, graphs_of, targets, sums, options.clip_norm, rows, links)
