"""A training step: forward, loss, backward and optimizer, and the sums that the loss of an epoch is made of."""

import inspect
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from cohort_gnn.nn.inputs import IndexedRows
from cohort_gnn.nn.row_optimizers import RowAdam
from cohort_gnn.spec.graph import ONE_OF_EACH, GraphTypes
from cohort_gnn.spec.run import TrainerSpec
from cohort_gnn.trainer.loader.source import AllRows, edges_by_type, tables_of
from cohort_gnn.trainer.loop.graphs import ReplayedWork, StepGraphs, graphs_for
from cohort_gnn.trainer.loop.inputs import blocks_of
from cohort_gnn.trainer.loop.ranks import Ranks, StepSums
from cohort_gnn.trainer.models.links import links_of_slot, scores_of_links
from cohort_gnn.trainer.models.own import callable_of
from cohort_gnn.trainer.models.own_loss import OwnLoss, loss_for
from cohort_gnn.trainer.models.sampled import called_by_type, input_dtypes, model_input
from cohort_gnn.trainer.models.targets import CLASSES, Targets


class Adam(torch.optim.Adam):
    """torch's, without what torch.compile needs around its methods: that imports seconds' worth of packages."""

    add_param_group = inspect.unwrap(torch.optim.Adam.add_param_group)
    state_dict = inspect.unwrap(torch.optim.Adam.state_dict)
    load_state_dict = inspect.unwrap(torch.optim.Adam.load_state_dict)
    zero_grad = inspect.unwrap(torch.optim.Adam.zero_grad)
    step = torch.no_grad()(inspect.unwrap(torch.optim.Adam.step))


def adam(model: torch.nn.Module, device: torch.device, lr: float, weight_decay: float = 0.0) -> Adam:
    """The optimizer of all runs: in one kernel, which on a GPU a CUDA graph can hold. It takes no complex numbers."""
    parameters = [*model.parameters()]
    fused = not any(parameter.is_complex() for parameter in parameters)
    return Adam(parameters, lr=lr, weight_decay=weight_decay, fused=fused, capturable=device.type == "cuda")


class Scores:
    """A model's scores of the seeds of batches.

    Args:
        model: a TypedGNN; or, of a graph of one node type, a SampledGNN or what is called as it is.
        amp: under autocast to bfloat16.
        keep_half: features of 16 bits go in as they are under autocast.
        all_rows: [any, dim] of each node type, of which slots name rows (``row_index``); None: slots have rows.
        types: of the graph.

    Attributes:
        spare_tables: memory of rows by node type that a batch may have until the next one, as tables_of() takes it.
    """

    def __init__(
        self,
        model: Callable,
        amp: bool = False,
        keep_half: bool = False,
        all_rows: AllRows = None,
        types: GraphTypes = ONE_OF_EACH,
    ):
        self.model, self.all_rows, self.types = model, all_rows, types
        self.spare_tables: Callable[[], Sequence[Tensor | None]] = tuple
        self._amp, self._keep_half = amp, amp and keep_half
        self._called = model if getattr(model, "takes_types", False) else called_by_type(model)

    def is_indexed(self, rows: Tensor) -> bool:
        """Whether the model takes rows that batches name as IndexedRows."""
        reads_in_place = getattr(self.model, "reads_in_place", None)
        return reads_in_place is not None and rows.dtype in input_dtypes(self._keep_half) and reads_in_place(rows)

    def score_slot(self, slot) -> Tensor:
        """float32 [seeds, num_classes]; where links are predicted, a row of the seed's node for each seed."""
        x, edges, *others = self.inputs_of(slot)
        return self(x, edges, slot.num_seeds, *others)

    def inputs_of(self, slot) -> tuple:
        """What the model takes of the batch in a slot, by type: features or else ids, edges, sizes by hop of nodes and
        of edges, and features of edges; then ages of nodes, where the model reads some, or of a graph of one edge type
        weights of edges, where batches have some."""
        types, x = self.types, {}
        tables = tables_of(slot, self.all_rows, self.is_indexed, self.spare_tables())
        tables = [IndexedRows(*table) if isinstance(table, tuple) else table for table in tables]
        nodes = dict(zip(types.counts, slot.nodes_of_types, strict=True))
        ids = slot.n_id.split([sum(per_hop) for per_hop in nodes.values()])
        for name, own_ids, table in zip(nodes, ids, tables, strict=True):
            x[name] = own_ids if table is None else table
        edges = dict(zip(types.edge_types, slot.edges_of_relations, strict=True))
        edge_tables = {name: slot.edge_table(number) for number, name in enumerate(types.edge_types) if types.edge_dims}
        attributes = {name: model_input(table) for name, table in edge_tables.items() if table is not None}
        last = slot.ages if types.age_spans else getattr(slot, "edge_weight", None)
        takes_blocks = getattr(self.model, "takes_indexed_blocks", False) and isinstance(tables[0], IndexedRows)
        edge_inputs = blocks_of(slot, types) if takes_blocks else edges_by_type(slot, types)
        return x, edge_inputs, nodes, edges, attributes, *(() if last is None else (last,))

    def __call__(self, x: dict, edges: dict | list[dict], num_seeds: int | None, *others) -> Tensor:
        """float32 [num_seeds, num_classes], or the scores of all nodes that the model has outputs for. For the other
        arguments see TypedGNN."""
        device = next(iter(x.values())).device
        x = {name: self._model_input(rows) for name, rows in x.items()}
        with torch.autocast(device.type, torch.bfloat16, enabled=self._amp):
            scores = self._called(x, edges, *others)
            if isinstance(scores, dict):  # rows of two node types, whose seeds stand by type
                scores = torch.cat(list(scores.values()))
        return scores[:num_seeds].float()

    def _model_input(self, rows: Tensor | IndexedRows) -> Tensor | IndexedRows:
        """model_input() of features; ids and IndexedRows stay."""
        is_indexed = isinstance(rows, IndexedRows)
        return rows if is_indexed or rows.dtype == torch.int64 else model_input(rows, self._keep_half)


class TrainStep:
    """Steps of one model.

    Args:
        scores: of the model that is trained.
        optimizer: from adam().
        device: the trainer's.
        graphs_of: seeds of batches that are run as CUDA graphs (see graphs.py); None: none are.
        targets: what the model learns, or what makes the loss of it.
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
        targets: Targets | OwnLoss = CLASSES,
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

    def _graphs_on(self, device: torch.device) -> StepGraphs:
        scores = self.scores
        graphs = graphs_for(self._run, device, scores.types, scores.all_rows, scores.is_indexed)
        scores.spare_tables = graphs.tables
        return graphs

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
        if self._links:  # of which y says the positions of their nodes among the seeds
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
            parameters = [parameter for group in self._optimizer.param_groups for parameter in group["params"]]
            parameters += self.rows.read_rows() if self.rows else []
            torch.nn.utils.clip_grad_norm_(parameters, self._clip_norm)
        self._optimizer.step()
        if self.rows:
            self.rows.step()


def scores_of(options: TrainerSpec, model: torch.nn.Module, all_rows: AllRows = None) -> Scores:
    """The Scores of a model that `model_of` made of these options."""
    is_fused = options.layers == "cohort" and not options.has_own_model
    called = callable_of(model, options.num_classes) if options.has_own_model else model
    return Scores(called, options.amp, is_fused, all_rows, options.graph)


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
    reads_edges = options.use_edge_weights or (options.edge_dim and not options.model_kind.several_types)
    takes_tensors = options.layers == "pyg" or reads_edges or options.has_own_model or ":" in options.loss
    learned = getattr(model, "embeddings", None)
    # Means of rows would count those that a batch lacks; learned rows and seeds of links differ in number.
    is_otherwise = takes_tensors or options.norm == "batch" or learned is not None or options.targets == "link"
    has_graphs = options.cuda_graphs and device.type == "cuda" and not is_otherwise
    scores, rows = scores_of(options, model, all_rows), None
    if learned is not None:
        group = optimizer.param_groups[0]
        dense_options = {name: group[name] for name in ("lr", "betas", "eps", "weight_decay")}
        rows = RowAdam(learned.values(), **dense_options)
        if ranks:
            rows.gather = ranks.gather_rows
    targets = loss_for(options, device)
    links = (model.link_decoder, options.negatives) if options.targets == "link" else None
    seeds = options.batch_size if has_graphs else None
    return TrainStep(scores, optimizer, device, seeds, targets, sums, options.clip_norm, rows, links)
