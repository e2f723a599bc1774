"""Optimizers of the rows of NodeEmbeddings that batches have read."""

import functools
import inspect
import math
from collections.abc import Callable, Iterable

import torch
import torch.distributed as dist
from torch import Tensor

from cohort_gnn.base.errors import CohortError
from cohort_gnn.nn import _native, kernels
from cohort_gnn.nn.kernels import GroupedEdges
from cohort_gnn.nn.node_embedding import NodeEmbedding, Read, RowTable, versions_of


class RowOptimizer(torch.optim.Optimizer):
    """Changes the rows that batches have read since the last step; other rows and their states stay as they are.

    The gradients of an id are added up first, in the order of a batch. One seed gives one result, also on a GPU.

    With rows in host memory, a GPU keeps the new rows of a step in the memory of their gradients. It writes them to
    host memory beside other work, and the next batch takes rows that it shares with this one from GPU memory.

    Args:
        embeddings: whose rows are trained.
        defaults: of the one group of options.
        states_on_device: also those of rows in host memory.
        group: the process group over whose ranks gradients are averaged, as DDP does; None: no others.

    Attributes:
        embeddings: as a list.
        gather: makes rows [any number, ...] those of all ranks, by rank.
        steps: of each embedding.
    """

    RULE: int
    NUM_STATES: int

    def __init__(
        self,
        embeddings: NodeEmbedding | Iterable[NodeEmbedding],
        defaults: dict,
        states_on_device: bool,
        group: dist.ProcessGroup | None,
    ):
        modules = [embeddings] if isinstance(embeddings, torch.nn.Module) else list(dict.fromkeys(embeddings))
        name, others = type(self).__name__, [module for module in modules if not isinstance(module, NodeEmbedding)]
        if others or not modules:
            actual = type(others[0]).__name__ if others else "none"
            raise CohortError(f"{name}: embeddings", "a cohort.nn.NodeEmbedding, or several", actual)
        for option in ("lr", "eps", "weight_decay"):
            if not defaults[option] >= 0:
                raise CohortError(f"{name}: {option}", "a number of at least 0", str(defaults[option]))
        self.embeddings = modules
        self._states_on_device, self._group = states_on_device, group
        self.gather: Callable[[Tensor], Tensor] = functools.partial(gather_rows, group=group)
        self.steps = [0 for _ in self.embeddings]
        self._states: list[list[RowTable]] = [[] for _ in self.embeddings]
        super().__init__([torch.empty(0) for _ in self.embeddings], defaults)  # the rows are not in groups
        self.zero_grad()

    def add_param_group(self, param_group: dict) -> None:
        """Refuses a second group: the options of the first are those of all embeddings."""
        if self.param_groups:
            place, hint = f"{type(self).__name__}.add_param_group", "make an optimizer for each set of options"
            raise CohortError(place, "one group of options", "another", hint)
        # Without what torch.compile needs around it: that imports seconds' worth of packages.
        inspect.unwrap(torch.optim.Optimizer.add_param_group)(self, param_group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets gradients. A backward pass that follows counts, also of an earlier forward pass."""
        for embedding in self.embeddings:
            _forget(embedding)

    def read_rows(self) -> list[Tensor]:
        """Tensors whose ``grad`` the next step uses, to clip it."""
        return [read.rows for embedding in self.embeddings for read in embedding.reads or []]

    @torch.no_grad()
    def exchange(self, divisor: Tensor | int) -> None:
        """Makes gradients the sums of those of all ranks, divided by a number. All ranks call it."""
        for embedding in self.embeddings:
            read = _joined(_with_grads(embedding), embedding)
            ids = (
                read.ids if read.row_index is None else torch.empty_like(read.ids).scatter_(0, read.row_index, read.ids)
            )
            ids, grads = _added_up(self.gather(ids), self.gather(read.rows.grad.contiguous()))
            rows = torch.empty_like(grads)
            rows.grad = grads.div_(divisor)
            embedding.reads = [Read(ids, None, rows)]

    @torch.no_grad()
    def step(self, closure: Callable | None = None):
        """Changes the rows."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if self._group is not None:
            self.exchange(dist.get_world_size(self._group))
        for number, embedding in enumerate(self.embeddings):
            if reads := _with_grads(embedding):
                self.steps[number] += 1
                self._update(number, _joined(reads, embedding))
            _forget(embedding)
        return loss

    def _update(self, number: int, read: Read) -> None:
        rows, grads = self.embeddings[number], read.rows.grad.contiguous()
        later, is_current = rows.table.puts_later, read.is_current(rows.table)
        states = self._states_of(number)
        refs = [states[min(i, len(states) - 1)].ref for i in range(2)]
        sizes = {"num_rows": rows.num_nodes, "dim": rows.dim, "count": len(read.ids)}
        arrays = {
            "ids": read.ids,
            "row_index": read.row_index,
            "grads": grads,
            "before": read.rows if is_current else None,
            "changed": grads if later else None,
        }
        if not is_current:
            rows.table.await_rows()
        tables = {"table": rows.table.ref, "first": refs[0], "second": refs[1]}
        options = {name: self.param_groups[0][name] for name in ("eps", "weight_decay")}
        factors = {name: float(value) for name, value in (options | self._factors(self.steps[number])).items()}
        kernels.run(_native.update_rows, read.ids, rule=self.RULE, **tables, **sizes, **arrays, **factors)
        if not rows.table.values.is_inference():
            torch.autograd.graph.increment_version(rows.table.values)
        if later:
            rows.table.put_later(read.ids, read.row_index, grads)

    def _factors(self, steps: int) -> dict[str, float]:
        """rate, share1 and share2 of UpdateRowsCall in trainer/nn/native/learned_rows.h."""
        raise NotImplementedError

    def _states_of(self, number: int) -> list[RowTable]:
        embedding = self.embeddings[number]
        if not self._states[number]:
            on_host = embedding.place == "host" and not self._states_on_device
            self._states[number] = [embedding.state_like_rows(on_host) for _ in range(self.NUM_STATES)]
        for table in self._states[number]:  # the rows may have moved since: kernels take no memory of another device
            table.move(embedding.table.device)
        return self._states[number]

    def __getstate__(self) -> dict:
        name = type(self).__name__
        hint = f"make a {name} of the copied embeddings, and give it this one's state_dict()"
        raise CohortError(f"copy or pickle of a {name}", "an optimizer of parameters", "one of embeddings", hint)

    def state_dict(self) -> dict:
        """Steps and states of each embedding, and the options; tensors are the memory itself."""
        groups = [{name: value for name, value in group.items() if name != "params"} for group in self.param_groups]
        states = [[table.whole() for table in tables] for tables in self._states]
        return {"steps": list(self.steps), "states": states, "param_groups": groups}

    def load_state_dict(self, state_dict: dict) -> None:
        """Takes over the state of an optimizer of equal embeddings.

        Raises:
            CohortError: the state is that of another optimizer, or of other embeddings. Nothing has changed then.
        """
        if missing := {"steps", "states", "param_groups"} - set(state_dict):
            actual = f"none of {', '.join(sorted(missing))}"
            raise CohortError(f"{type(self).__name__}.load_state_dict", "what state_dict() of one returns", actual)
        steps, states = list(state_dict["steps"]), list(state_dict["states"])
        shapes = [[(embedding.num_nodes, embedding.dim)] * self.NUM_STATES for embedding in self.embeddings]
        state_shapes = [[tuple(state.shape) for state in values] for values in states]
        fits = [values in ([], wanted) for values, wanted in zip(state_shapes, shapes, strict=False)]
        if len(steps) != len(shapes) or len(state_shapes) != len(shapes) or not all(fits):
            place = f"{type(self).__name__}.load_state_dict: states"
            raise CohortError(place, f"of each embedding none, or {shapes}", str(state_shapes))
        for group, options in zip(self.param_groups, state_dict["param_groups"], strict=True):
            group.update(options)
        self.steps = steps
        for number, values in enumerate(states):
            if not values:
                self._states[number] = []  # zeros again, once there is a step
            for table, state in zip(self._states_of(number) if values else [], values, strict=True):
                table.assign(state)


class RowAdagrad(RowOptimizer):
    """Adagrad (Duchi et al., JMLR 2011) with the results of ``torch.optim.Adagrad`` on sparse gradients.

    Examples:
        >>> rows = cohort.nn.NodeEmbedding(1000, 16, seed=0)
        >>> optimizer = cohort.nn.RowAdagrad(rows, lr=0.01)
        >>> rows(torch.tensor([3, 7])).sum().backward()
        >>> optimizer.step()

    It has one state of the size of the rows.

    Args:
        embeddings: a NodeEmbedding or several.
        lr: the learning rate.
        eps: is added to the root of the state.
        weight_decay: times a row is added to the row's gradient, for rows that a batch has read.
        states_on_device: keep the state in GPU memory, also that of rows in host memory.
        group: the process group over whose ranks gradients are averaged, as DDP does. All ranks must have equal rows
            at first: use the same seed. None: no other ranks.
    """

    RULE, NUM_STATES = _native.ADAGRAD, 1

    def __init__(
        self,
        embeddings: NodeEmbedding | Iterable[NodeEmbedding],
        lr: float = 0.01,
        eps: float = 1e-10,
        *,
        weight_decay: float = 0.0,
        states_on_device: bool = False,
        group: dist.ProcessGroup | None = None,
    ):
        super().__init__(embeddings, {"lr": lr, "eps": eps, "weight_decay": weight_decay}, states_on_device, group)

    def _factors(self, steps: int) -> dict[str, float]:
        return {"rate": self.param_groups[0]["lr"], "share1": 0.0, "share2": 0.0}


class RowAdam(RowOptimizer):
    """Adam (Kingma and Ba, ICLR 2015) with the results of ``torch.optim.SparseAdam``.

    Examples:
        >>> rows = cohort.nn.NodeEmbedding(1000, 16, seed=0)
        >>> optimizer = cohort.nn.RowAdam(rows, lr=0.01)
        >>> rows(torch.tensor([3, 7])).sum().backward()
        >>> optimizer.step()

    Moments are corrected by the number of all steps, also for rows that few batches read. It has two states of the size
    of the rows.

    Args:
        embeddings: a NodeEmbedding or several.
        lr: the learning rate.
        betas: how much of the two moments a step keeps.
        eps: is added to the root of the second moment.
        weight_decay: as of RowAdagrad.
        states_on_device: as of RowAdagrad.
        group: as of RowAdagrad.
    """

    RULE, NUM_STATES = _native.ADAM, 2

    def __init__(
        self,
        embeddings: NodeEmbedding | Iterable[NodeEmbedding],
        lr: float = 0.001,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        *,
        weight_decay: float = 0.0,
        states_on_device: bool = False,
        group: dist.ProcessGroup | None = None,
    ):
        if len(betas) != 2 or not all(0 <= beta < 1 for beta in betas):
            raise CohortError("RowAdam: betas", "two numbers of at least 0 and less than 1", str(betas))
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(embeddings, defaults, states_on_device, group)

    def _factors(self, steps: int) -> dict[str, float]:
        options = self.param_groups[0]
        beta1, beta2 = options["betas"]
        rate = float(options["lr"]) * math.sqrt(1 - beta2**steps) / (1 - beta1**steps)
        return {"rate": rate, "share1": 1 - beta1, "share2": 1 - beta2}


def _forget(embedding: NodeEmbedding) -> None:
    """Gradients of what was read; those of later backward passes begin anew."""
    for read in embedding.reads or []:
        read.rows.grad = None
    embedding.reads = []


def _with_grads(embedding: NodeEmbedding) -> list[Read]:
    """The reads whose rows have gradients."""
    return [read for read in embedding.reads or [] if read.rows.grad is not None]


def _joined(reads: list[Read], embedding: NodeEmbedding) -> Read:
    """One Read of all."""
    if len(reads) == 1:
        return reads[0]
    device = embedding.table.device
    none = torch.empty(0, dtype=torch.int64, device=device)
    first, row_indices = 0, [none]
    for read in reads:
        row_indices.append(
            first + (torch.arange(len(read.ids), device=device) if read.row_index is None else read.row_index)
        )
        first += len(read.ids)
    ids, order = torch.sort(torch.cat([none, *(read.ids for read in reads)]), stable=True)
    no_rows = torch.empty(0, embedding.dim, dtype=torch.float32, device=device)
    rows = torch.cat([no_rows, *(read.rows.detach() for read in reads)])
    rows.grad = torch.cat([no_rows, *(read.rows.grad for read in reads)])
    table = embedding.table
    versions = versions_of(rows, table.values) if all(read.is_current(table) for read in reads) else None
    return Read(ids, torch.cat(row_indices)[order], rows, versions)


def _added_up(ids: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Each id once, ascending, with the sum of its rows, in their order: the same bits on every rank."""
    ordered = torch.sort(ids, stable=True)
    unique, counts = torch.unique_consecutive(ordered.values, return_counts=True)
    indptr = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
    return unique, kernels.sum_rows(GroupedEdges(indptr, ordered.indices, unique.numel()), rows)


def gather_rows(values: Tensor, group: dist.ProcessGroup | None = None) -> Tensor:
    """The rows of the ``values`` [any number, ...] of every rank of a process group, by rank; None: all ranks."""
    counts = values.new_zeros(dist.get_world_size(group), dtype=torch.int64)
    counts[dist.get_rank(group)] = values.shape[0]
    dist.all_reduce(counts, group=group)
    sizes = counts.tolist()
    padded = values.new_zeros(max(sizes), *values.shape[1:])
    padded[: values.shape[0]] = values
    parts = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(parts, padded, group=group)
    return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])
