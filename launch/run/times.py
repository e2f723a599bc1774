"""Whether a run draws edges up to the times of its seeds, and how."""

import logging
import re
from typing import Any

import numpy as np

from cohort_gnn.base.distinct import has_repeats
from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import StoredGraph
from cohort_gnn.dataset.cli_parts import edges_missed, span_of
from cohort_gnn.dataset.learned import learned, link_rows_of, rows_of, seen_until
from cohort_gnn.dataset.links import edge_type_named, held_out_of, link_edges
from cohort_gnn.dataset.tasks import NS_OF_UNIT, Task, demand_later
from cohort_gnn.spec.graph import NO_TIME, GraphTypes
from cohort_gnn.spec.models import SEVERAL_TYPES, listed
from cohort_gnn.spec.options import flag_of
from cohort_gnn.spec.run import RunSpec

LOG = logging.getLogger(__name__)
OVERLAP_CURE = "--overlapping-times allow, or --time-attr none, which ignores times,"
OTHER_TASKS = ("digest", "step", "batches")  # of the trainer's program, which run.json has in the same place
NAMES_CURE = (
    "import the graph as a HeteroData, or by a graph.yaml with keys: its types have names, even if there is one"
)
IMPORT_HINT = "cohort dataset import reads times of nodes and edges: `time` in graph.yaml, --edge-times, --time-column"


def task_of(spec: RunSpec, data: StoredGraph) -> Task:
    """What a run with these options learns, unless it learns edges as links (--task link).

    Raises:
        CohortError: --task names none of the data set's tasks.
    """
    return learned(data, task_name(spec))


def learns_links(spec: RunSpec, data: StoredGraph) -> bool:
    """Whether a run learns links: edges, or a task of links."""
    return spec.task == "link" or task_of(spec, data).kind == "link"


def task_name(spec: RunSpec) -> str | None:
    """Of the task of the data set that --task names.

    Raises:
        CohortError: programs of Cohort are called so.
    """
    if spec.task in OTHER_TASKS:
        hint = f"rename its folder: tasks/{spec.task}"
        raise CohortError(f"--task {spec.task}", f"a name other than {', '.join(OTHER_TASKS)}", spec.task, hint)
    return None if spec.task in (None, "node", "link") else spec.task


def metric_of_task(spec: RunSpec, data: StoredGraph) -> str | None:
    """The metric of the task that --task names, by which its epochs are compared without --monitor; of a task of links
    that has none, "map@10"; None: it is not said."""
    if task_name(spec) is None:
        return None
    task = task_of(spec, data)
    return task.metric or ("map@10" if task.kind == "link" else None)


def seed_times(spec: RunSpec, data: StoredGraph, seen: bool = False) -> dict[str, np.ndarray] | None:
    """int64 [n], the times of the seeds of each split; None: they have none. Edges as links have their own times;
    held-out ones those that `cohort dataset split-links --by-time` keeps.

    Args:
        seen: of a task's rows, the times up to which they see the graph.
    """
    if spec.task == "link":
        edges = link_edges(data, spec.relation)
        times = {"train": edges.lists.edge_times} | {name: held.times for name, held in held_out_of(edges).items()}
    else:
        task = task_of(spec, data)
        times = {split: seen_until(task, rows) if seen else rows.times for split, rows in task.splits.items()}
    known = {split: own for split, own in times.items() if own is not None}
    return known if len(known) == len(times) else None


def is_in_time(spec: RunSpec, data: StoredGraph) -> bool:
    """Whether seeds get edges up to their times alone.

    Raises:
        CohortError: --time-attr asks for times that edges or seeds do not have.
    """
    if spec.time_attr == "none" or (spec.task == "link" and spec.time_attr is None):
        return False
    edges_have = any(relation.edge_times is not None for relation in data.edge_types.values())
    has_times = edges_have and seed_times(spec, data) is not None
    if spec.time_attr == "edge_time" and not has_times:
        expected, hint = f"times of edges in {data.path}", IMPORT_HINT
        if edges_have and spec.task == "link":
            expected = "times of the links to learn, and of those that are held out"
            hint = "cohort dataset split-links --by-time keeps those of the links that it holds out"
        elif edges_have:
            expected = (
                f"times of the seeds: of the nodes of {task_of(spec, data).node_type}, or of a task (--task NAME)"
            )
        raise CohortError("--time-attr edge_time", expected, "none", hint)
    return has_times


def check_times(spec: RunSpec, data: StoredGraph) -> None:
    """Raises CohortError for options of draws in time that do not fit the data set, or each other."""
    if not is_in_time(spec, data):
        for option in ("temporal_strategy", "time_window", "overlapping_times", "time_encoding"):
            if getattr(spec, option) not in (getattr(RunSpec, option), "none"):
                actual = "--time-attr none" if spec.time_attr == "none" else "a run that does not use times"
                raise CohortError(flag_of(option), "--time-attr edge_time", actual, "leave it out")
        return
    time_windows(spec, data)
    times, name = seed_times(spec, data), task_name(spec)
    assert times is not None
    for split, own in times.items():
        if len(own) and own.min() == NO_TIME:
            hint = "leave such nodes out of the splits, or say --time-attr none"
            raise CohortError(f"{data.path}: {split}, times[{own.argmin()}]", "a time", "a node without one", hint)
    may_overlap = spec.overlapping_times == "allow" or (name and task_of(spec, data).overlapping_times)
    if not may_overlap:
        demand_later(times, f"--task {name}" if name else str(data.path), OVERLAP_CURE)
    refused = {
        "--weight-attr": spec.weight_attr is not None,
        "--sampling labor": spec.sampling == "labor",
        "--partition": spec.partition,
    }
    for flag, is_set in refused.items():
        if is_set:
            hint = "leave it out, or say --time-attr none"
            raise CohortError(flag, "a run that does not use times", "--time-attr edge_time", hint)
    if spec.time_encoding == "relative":
        place = "--time-encoding relative"
        if not spec.model_kind.several_types:
            hint = f"leave it out, or {NAMES_CURE}"
            raise CohortError(place, f"--model {listed(SEVERAL_TYPES)}", f"--model {spec.model}", hint)
        if all(table.node_times is None for table in data.node_types.values()):
            raise CohortError(place, f"times of nodes in {data.path}", "none", IMPORT_HINT)
    if spec.cache_ratio == "auto":
        hint = "slots take more memory for trees: say --cache-bytes or a number"
        raise CohortError("--cache-ratio", "a number, for draws in time", "auto", hint)


def age_spans(spec: RunSpec, data: StoredGraph, types: GraphTypes) -> dict[str, int]:
    """What GraphTypes.age_spans is for a run: of each node type with times that the model reads, the greatest age at a
    seed of the training. Empty: the model reads no times."""
    times = seed_times(spec, data) if is_in_time(spec, data) and spec.time_encoding != "none" else None
    if times is None or not spec.model_kind.several_types or not len(times["train"]):
        return {}
    last, spans = int(times["train"].max()), {}
    read = {end for source, _, target in types.edge_types_by_layer(len(spec.fanout))[0] for end in (source, target)}
    for name, table in data.node_types.items():
        if name in read and table.node_times is not None:
            known = table.node_times[table.node_times != NO_TIME]
            spans[name] = max(1, last - int(known.min())) if len(known) else 1
    return spans


def time_windows(spec: RunSpec, data: StoredGraph) -> list[int] | None:
    """[edge types], -1 where a relation has none; None: there is no --time-window.

    Raises:
        CohortError: it names a relation that the data set does not have, or one without times.
    """
    if spec.time_window is None:
        return None
    if "=" not in spec.time_window:
        return [_window_of(spec.time_window, spec, data)] * len(data.edge_types)
    windows = dict.fromkeys(data.edge_types, -1)
    for part in spec.time_window.split(","):
        name, _, window = part.rpartition("=")
        relation = edge_type_named(data, name, "--time-window")
        if data.edge_types[relation].edge_times is None:
            hint = "leave it out: edges without times are always there"
            raise CohortError(f"--time-window {part}", "a relation with times", "none", hint)
        windows[relation] = _window_of(window, spec, data)
    return list(windows.values())


def _window_of(text: str, spec: RunSpec, data: StoredGraph) -> int:
    """ "30", or "30days" of times whose unit a task says, in their unit."""
    number, suffix = re.fullmatch(r"(\d+)(.*)", text).groups()  # type: ignore[union-attr]
    if not suffix:
        return int(number)
    place, unit = f"--time-window {text}", task_of(spec, data).time_unit if task_name(spec) else None
    if unit is None:
        raise CohortError(place, "a number in the unit of the times, which no task says", suffix)
    nanoseconds = int(number) * NS_OF_UNIT[suffix]
    if nanoseconds % NS_OF_UNIT[unit] or nanoseconds >= 2**63 * NS_OF_UNIT[unit]:
        raise CohortError(place, f"a whole number of {unit}, the unit of the times, below 2^63", text)
    return nanoseconds // NS_OF_UNIT[unit]


def trees_of(spec: RunSpec, data: StoredGraph) -> dict[str, Any] | None:
    """Fields of requests (channel/request.h) for a run in which each seed has a tree of its own: one in time, and one
    whose task has a node in several rows; None: seeds share nodes."""
    if is_in_time(spec, data):
        draw = "last" if spec.temporal_strategy == "last" else "uniform"
        return {"disjoint": True, "draw": draw, "time_window": time_windows(spec, data) or []}
    if task_name(spec) is None or learns_links(spec, data):
        return None
    repeats = any(has_repeats(rows.nodes) for rows in rows_of(task_of(spec, data)).values())
    if repeats and spec.sampling == "labor":
        seeds = f"--task {task_name(spec)}, in which a node has several rows, so that each seed has a tree of its own"
        raise CohortError("--sampling labor", "seeds that share nodes", seeds, "leave one of the two options out")
    return {"disjoint": True} if repeats else None


def counted_seeds(
    spec: RunSpec, data: StoredGraph, split: str = "train"
) -> tuple[np.ndarray | None, dict[str, Any] | None]:
    """What the short run that counts reads for a cache is to draw, of a run that learns labels of nodes: seeds int64
    [n], of all node types numbered through, None: those of the split; and as `presample` takes them, their trees."""
    task, trees = task_of(spec, data), trees_of(spec, data)
    rows = rows_of(task)[split]
    if trees is not None and is_in_time(spec, data):
        trees["times"] = seen_until(task, rows)
    is_own = bool(task.name) or trees is not None
    return rows.nodes + data.first_node[task.node_type] if is_own else None, trees


def counted_pairs(spec: RunSpec, data: StoredGraph) -> tuple[np.ndarray, dict[str, Any]]:
    """The same of a run that learns links in time: both ends of some links, and as many negatives as each has, in trees
    at the times of the links."""
    trees, generator = trees_of(spec, data), np.random.default_rng(0)
    if spec.task == "link":
        edges = link_edges(data, spec.relation)
        (source_type, _, target_type), times = edges.relation, edges.lists.edge_times
        endpoints = edges.endpoints()
    else:
        task = task_of(spec, data)
        rows = link_rows_of(task)["train"]
        source_type, target_type, times = task.node_type, str(task.target_type), seen_until(task, rows)
        assert rows.targets is not None
        endpoints = np.stack([rows.sources, rows.targets])
    assert trees is not None and times is not None
    most = min(len(times), spec.presample_batches * spec.batch_size)
    chosen = np.sort(generator.choice(len(times), most, replace=False))
    first_target = data.first_node[target_type]
    sources, targets = endpoints[:, chosen] + np.array([[data.first_node[source_type]], [first_target]])
    count = 0 if spec.negatives_from == "batch" else spec.negatives
    negatives = first_target + generator.integers(data.node_types[target_type].num_nodes, size=(most, count))
    seeds = np.concatenate([sources[:, None], targets[:, None], negatives], axis=1).reshape(-1)
    return seeds, trees | {"times": np.repeat(np.asarray(times[chosen]), 2 + count)}


def _say_whether_edges_are_there(spec: RunSpec, data: StoredGraph) -> None:
    """Warns where training sees no edge that has a time, as of times in other units; edges as links see themselves."""
    times, windows = (seed_times(spec, data, seen=True) or {})["train"], time_windows(spec, data)
    if spec.task == "link" or not len(times):
        return
    ages = dict(zip(data.edge_types, windows or [-1] * len(data.edge_types), strict=True))
    first, last = int(times.min()), int(times.max())
    spans = {
        name: (NO_TIME if ages[name] < 0 else max(NO_TIME, first - ages[name]), last)
        for name, relation in data.edge_types.items()
        if relation.edge_times is not None
    }
    if missed := edges_missed(data, spans):
        seen = f"training, whose times are {span_of(times)}, sees none of the edges that have times, {missed}"
        LOG.warning(f"{seen}: are they in other units?")


def say_whether_times_are_used(spec: RunSpec, data: StoredGraph) -> None:
    """Names times of edges or nodes that a run does not use, and how it would."""
    if is_in_time(spec, data):
        _say_whether_edges_are_there(spec, data)
        have_ages = any(table.node_times is not None for table in data.node_types.values())
        if have_ages and spec.time_encoding is None and not spec.model_kind.several_types:
            models = listed(SEVERAL_TYPES, "and")
            LOG.info(f"ages of nodes are not used: --model {spec.model} reads none, {models} do: {NAMES_CURE}")
        return
    if all(relation.edge_times is None for relation in data.edge_types.values()):
        return
    why = "seeds have no times"
    if spec.time_attr == "none":
        why = "as --time-attr none says"
    elif spec.task == "link":
        why = "--time-attr edge_time learns links at their times"
    LOG.info(f"edge times are not used: neighbours are drawn whatever their time ({why})")
