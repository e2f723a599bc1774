"""The program of ``cohort predict``, ``python -m cohort_gnn.trainer.predict JOB``; JOB is JSON.

The job: ``run`` and ``dataset`` (folders), ``out`` (file), ``classes``, ``node_type`` (or null), ``top_k`` (or null),
``exclude_seen`` (or null), ``nodes`` (file, or null), ``threshold`` (or null), ``memory_bytes``, ``device``, ``quiet``,
``owner_pid`` (who waits for it), ``keep`` and ``update`` (folders, or null).
"""

import contextlib
import json
import logging
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from torch import Tensor, nn

from cohort_gnn.base.ending import leave, lost_signals_repeated
from cohort_gnn.base.errors import CohortError, found_full, why
from cohort_gnn.base.files import BegunFile, FileWriter, replacing, temporary_folder
from cohort_gnn.base.log import shown
from cohort_gnn.base.progress_lines import ProgressLines
from cohort_gnn.base.spelling import did_you_mean
from cohort_gnn.base.units import format_bytes
from cohort_gnn.dataset import StoredGraph, original_ids
from cohort_gnn.dataset.cli_parts import edges_missed
from cohort_gnn.dataset.columns import AS_BEFORE_HINT, first_difference, read_columns
from cohort_gnn.dataset.columns import FILE as COLUMNS
from cohort_gnn.dataset.components import same_components
from cohort_gnn.dataset.links import LinkEdges
from cohort_gnn.dataset.treatment import numbers_text, other_options, read_treatment
from cohort_gnn.spec.graph import NODE_TYPE, EdgeType, GraphTypes
from cohort_gnn.spec.options import flag_of
from cohort_gnn.spec.run import TrainerSpec, from_json
from cohort_gnn.spec.run_file import read_run_json
from cohort_gnn.spec.types import checked
from cohort_gnn.trainer.loader import _native
from cohort_gnn.trainer.models.best_targets import demand_numbers, find_best_targets, queries_of
from cohort_gnn.trainer.models.own import model_described
from cohort_gnn.trainer.models.targets import Classes, LinkTargets, MultiLabel, Targets
from cohort_gnn.trainer.models.weights import load_weights
from cohort_gnn.trainer.predict.digests import digests_of
from cohort_gnn.trainer.predict.early import EarlyWork
from cohort_gnn.trainer.predict.kept_layers import ROOM_HINT, keep_digests, kept_folder, made_of, read_before
from cohort_gnn.trainer.predict.layerwise import (
    KeptIn,
    Layerwise,
    MemoryPlan,
    keep_scores,
    plan_memory,
    table_bytes,
)
from cohort_gnn.trainer.predict.node_rows import ArrayRows, UpdatedRows, new_rows
from cohort_gnn.trainer.predict.score_tables import (
    NamedNodes,
    columns_of_scores,
    is_table,
    score_blocks,
    target_blocks,
    wanted_nodes,
    write_table,
)
from cohort_gnn.trainer.predict.update import begin_copies, reached_by, update_layers, write_layers

ROWS_AT_ONCE = 1 << 16  # of scores on their way to the output
LOG = logging.getLogger(__name__)


def model_of_run(run: Path, data: StoredGraph) -> tuple[nn.Module, Targets]:
    """The model of a run, with its weights, and what it learned.

    Its layers are Cohort's, whoever's the run had: their weights are the same.

    Raises:
        CohortError: it is no run, its model is not kept, or its features or types are not those of the data set.
    """
    model, targets, options = model_described(run)
    for name, argument in (("use_edge_weights", "edge_weights=True"), ("weight_attr", 'weight_attr="edge_weight"')):
        if options.get(name):
            hint = f"score nodes in batches: NeighborLoader(DIR, fanout, {argument}), and cohort.load_model(RUN)"
            raise CohortError(str(run / "run.json"), f"a run without {flag_of(name)}", "one with", hint)
    spec = from_json(options, TrainerSpec, str(run / "run.json"))
    own_target = {} if spec.task_name is None else {"target": data.target}  # a task names a node type of its own
    _demand_same_types(replace(spec.graph, **own_target), data, run, model)
    _demand_same_columns(run, data)
    _warn_of_other_import(run, data)
    load_weights(run, model)
    return model, targets


def _demand_same_types(trained_on: GraphTypes, data: StoredGraph, run: Path, model: nn.Module) -> None:
    """Raises CohortError: the data set has not the types of the run, or other nodes where their rows were learned."""
    place, data_types = str(data.path), data.types
    hint = f"the run's data set: {read_run_json(run).get('sampler', {}).get('dataset', 'unknown')}"
    for what, member in (("node types", "counts"), ("edge types", "edge_types"), ("target", "target")):
        expected, actual = (getattr(types, member) for types in (trained_on, data_types))
        expected, actual = (sorted(value) if isinstance(value, dict) else value for value in (expected, actual))
        if expected != actual:
            raise CohortError(place, f"the {what} of the run: {expected}", str(actual), hint)
    for name, dim in trained_on.feature_dims.items():
        if data_types.feature_dims[name] != dim:
            suffix = f" of type {name}" if data.key_of(name) else ""
            expected, actual = f"{dim} features per node{suffix}, as the run had", str(data_types.feature_dims[name])
            raise CohortError(place, expected, actual, hint)
    for edge_type, dim in trained_on.edge_dim_of.items():
        table = data.edge_types[edge_type].edge_table
        if table is None or table.feature_dim != dim:
            suffix = f" of {', '.join(edge_type)}" if data.key_of(edge_type) else ""
            actual = "none" if table is None else str(table.feature_dim)
            raise CohortError(place, f"{dim} features per edge{suffix}, as the run had", actual, hint)
    for name in trained_on.age_spans:
        if data.node_types[name].node_times is None:
            raise CohortError(place, f"times of nodes of type {name}, as the run had", "none", hint)
    learned = getattr(model, "embeddings", None)
    for name in learned.keys() if learned else ():
        expected, count = trained_on.counts[name], data_types.counts[name]
        if count != expected:
            hint = "rows of these nodes were learned (--featureless embed), and there are none for others"
            raise CohortError(place, f"{expected:,} nodes of type {name}, as the run had", f"{count:,}", hint)


def _demand_same_columns(run: Path, data: StoredGraph) -> None:
    """Raises CohortError: features of the data set are other columns than those of the run, or were encoded with other
    means or categories, or its classes have other names."""
    if what := first_difference(read_columns(run), read_columns(data.path)):
        expected = f"{what} as {run / COLUMNS} has them: the same columns, means, categories and names"
        raise CohortError(str(data.path), expected, "others", AS_BEFORE_HINT)


def _warn_of_other_import(run: Path, data: StoredGraph) -> None:
    """Warns where another import made other edges and features of a source than the import of the run's data set."""
    before, now = read_treatment(run), read_treatment(data.path)
    trained_on = read_run_json(run).get("sampler", {}).get("dataset", "unknown")
    if others := other_options(before, now):
        LOG.warning(f"{data.path} was imported with other {', '.join(others)} than {trained_on}, which the run learned")
    elif before and now and now.pca is not None and not same_components(run, data.path):
        if Path(trained_on).resolve() != data.path.resolve():
            text = f"features are components (--pca) of its own rows; those that the run learned are of {trained_on}"
            LOG.warning(f"{data.path}: {text}: import it with --columns-from {trained_on}")


def output_of(model: nn.Module, node_type: str | None) -> str:
    """The node type whose scores are wanted.

    Raises:
        CohortError: the model tells of two, and none is chosen; or it does not tell of this one.
    """
    outputs = getattr(model, "outputs", [])
    if node_type in outputs or (node_type is None and len(outputs) < 2):
        return node_type or next(iter(outputs), NODE_TYPE)
    expected = " or ".join(outputs) if outputs else "a run on several node types"
    raise CohortError("--node-type", expected, node_type or "none", did_you_mean(node_type or "", outputs))


def layers_of(model: nn.Module, data: StoredGraph, job: dict, device: torch.device, name: str) -> Layerwise:
    """What computes the scores of a node type, within the memory that there is."""
    gpu_bytes = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else None
    tables = table_bytes(model, data, name)
    memory = plan_memory(job["memory_bytes"], data.num_nodes, tables, not model.two_sided, gpu_bytes)
    return Layerwise(model, data, memory, Path(job["out"]), device, name, spans_of(job, data), job["at_time"])


def spans_of(job: dict, data: StoredGraph) -> dict[EdgeType, tuple[int, int]]:
    """The first and the last time that edges of each edge type with times may have, for --at-time; empty: the run did
    not use times.

    Raises:
        CohortError: --at-time is missing, or has no meaning.
    """
    run, at_time = Path(job["run"]), job["at_time"]
    windows = windows_of(run, data)
    if windows is None:
        if at_time is not None:
            raise CohortError("--at-time", "a run that used times", f"{run}, which did not", "leave it out")
        return {}
    if at_time is None:
        hint = "--at-time T predicts from the edges that exist then, in the unit of the data set's times"
        raise CohortError("--at-time", "a time, for a run that used times", "none", hint)
    if not windows:
        raise CohortError("--at-time", f"times of edges in {data.path}", "none", "import the data set with times")
    return spans_at(windows, at_time)


def windows_of(run: Path, data: StoredGraph) -> dict[EdgeType, int] | None:
    """How old edges of each edge type with times may be, -1: of any age; None: the run did not use times."""
    options = from_json(read_run_json(run)["trainer"], TrainerSpec, str(run / "run.json"))
    if not options.in_time:
        return None
    place = f"{run / 'run.json'}: trainer.trees.time_window"
    windows = checked(place, (options.trees or {}).get("time_window") or [-1] * len(data.edge_types), list[int])
    if len(windows) != len(data.edge_types):
        raise CohortError(place, f"{len(data.edge_types)} integers, one for each relation", f"{len(windows)}")
    window_of = dict(zip(data.edge_types, windows, strict=True))
    return {name: window_of[name] for name, relation in data.edge_types.items() if relation.edge_times is not None}


def spans_at(windows: Mapping[EdgeType, int], at_time: int) -> dict[EdgeType, tuple[int, int]]:
    """The first and the last time that edges may have, whose age at a time is bounded as `windows_of` says."""
    return {name: (-(2**63) if age < 0 else max(-(2**63), at_time - age), at_time) for name, age in windows.items()}


def predict_nodes(job: dict, early: EarlyWork | None = None) -> None:
    """Writes the output file whole or not at all.

    Raises:
        CohortError: see `model_of_run` and `plan_memory`; a disk that is full; an output folder that is not there.
    """
    out, early = Path(job["out"]), early or EarlyWork()
    data = early.open_checked(job["dataset"])
    model, targets = model_of_run(Path(job["run"]), data)
    if missed := edges_missed(data, spans_of(job, data)):
        text = f"--at-time {job['at_time']}: none of the edges that have times, {missed}, counts then"
        LOG.warning(f"{text}: is it in their unit?")
    start = time.monotonic()
    with replacing_explained(job, early.output) as temporary:
        if job["top_k"] is None:
            summary, memory = write_scores(job, data, model, targets, temporary, early)
        else:
            summary, memory = write_best_targets(job, data, model, targets, temporary)
    if not job["quiet"]:
        memories = dict.fromkeys(memory.kept_in[1:] or [KeptIn.WHOLE])
        on_gpu = job["device"] != "cpu"
        where = " and ".join("the GPU's memory" if on_gpu and kept == KeptIn.WHOLE else kept for kept in memories)
        LOG.info(f"{out}: {summary} in {time.monotonic() - start:.2f} s, hidden layers in {where}")


def write_scores(
    job: dict, data: StoredGraph, model: nn.Module, targets: Targets, file: Path, early: EarlyWork
) -> tuple[str, MemoryPlan]:
    """Writes the scores, or the classes, of all nodes, or of those that are wanted; returns what is in the file, and
    where hidden layers were."""
    name, device, out = output_of(model, job["node_type"]), torch.device(job["device"]), Path(job["out"])
    nodes = named_nodes(job, data, name, job["nodes"])
    best, one = choice_of(targets) if job["classes"] and not is_table(out) else None, torch.zeros(1, model.num_classes)
    if isinstance(targets, LinkTargets) and out.suffix == ".csv":
        hint = f"--out {out.with_suffix('.parquet').name}; --top-k K writes the best targets, also as .csv"
        raise CohortError("--out", ".npy or .parquet, for rows of a model that predicts links", out.name, hint)
    if is_table(out):
        names = class_names(job)
        columns = columns_of_scores(targets, names, job["classes"], threshold_of(job, targets, model.num_classes))
    kept = (best(one) if best else one).numpy()
    shape = nodes.count, *kept.shape[1:]
    layers = layers_of(model, data, job, device, name)
    if not is_table(out) and nodes.nodes is None:
        _, memory = fill_scores(job, data, layers, best, file, shape, kept.dtype, early)
        return f"{kept.dtype.name} {list(shape)}", memory
    with temporary_folder(out) as folder:
        scores, memory = fill_scores(job, data, layers, best, folder / "rows.npy", shape, kept.dtype, early)
        if is_table(out):
            write_table(file, out.suffix, score_blocks(scores, nodes, columns))
            return f"{nodes.num_rows:,} rows", memory
        assert nodes.nodes is not None
        chosen = new_rows((nodes.num_rows, *kept.shape[1:]), file, kept.dtype)
        np.take(scores, nodes.nodes, axis=0, out=chosen)
    return f"{kept.dtype.name} {list(chosen.shape)}", memory


def choice_of(targets: Targets) -> Callable[[Tensor], Tensor]:
    """What chooses answers by scores; numbers to regress are their scores, whatever they are."""
    is_choice = isinstance(targets, Classes | MultiLabel)
    return (lambda scores: targets.best(demand_numbers(scores))) if is_choice else targets.best


def class_names(job: dict) -> list[str]:
    """What classes or labels are called: as in the run's task, else as in its data set, or else in that predicted."""
    run = Path(job["run"])
    options = from_json(read_run_json(run)["trainer"], TrainerSpec, str(run / "run.json"))
    if options.task_name is not None:
        return options.class_names or []
    return read_columns(job["run"]).classes or read_columns(job["dataset"]).classes


def named_nodes(job: dict, data: StoredGraph, node_type: str, wanted: str | None) -> NamedNodes:
    """The nodes of a type, with the ids that they had in the source, and which of them are wanted."""
    ids, count = original_ids(job["dataset"], node_type), data.node_types[node_type].num_nodes
    if wanted is not None and (text := numbers_text(data.path)):
        LOG.warning(text)
    return NamedNodes(ids, wanted_nodes(None if wanted is None else Path(wanted), ids, count), count)


def threshold_of(job: dict, targets: Targets, num_classes: int) -> float | None:
    """The probability from which a label is predicted, if one is given.

    Raises:
        CohortError: the run has not two classes, or labels.
    """
    if job["threshold"] is not None and not (
        isinstance(targets, MultiLabel) or isinstance(targets, Classes) and num_classes == 2
    ):
        hint = "leave it out: the class of the highest probability is predicted"
        raise CohortError("--threshold", "a run with two classes, or with several labels", "another", hint)
    return job["threshold"]


def write_best_targets(
    job: dict, data: StoredGraph, model: nn.Module, targets: Targets, file: Path
) -> tuple[str, MemoryPlan]:
    """Writes the best targets of each source, of a model that predicts links; returns what write_scores() does."""
    if not isinstance(targets, LinkTargets):
        raise CohortError("--top-k", "a run that learned to predict links", "a run that learned labels")
    device, decoder = torch.device(job["device"]), model.link_decoder
    queries_of(decoder, torch.zeros(1, model.num_classes))  # or its error, before the work
    options = from_json(read_run_json(Path(job["run"]))["trainer"], TrainerSpec, job["run"])
    relation = options.graph.relation
    assert relation is not None
    if options.task_name is not None and job["exclude_seen"]:
        actual = f"a run of the task {options.task_name}, in whose rows targets come again"
        raise CohortError("--exclude-seen", "a run that learned links of the graph", actual, "leave it out")
    edges = LinkEdges(data, relation)
    if job["top_k"] > edges.num_targets:
        raise CohortError("--top-k", f"at most {edges.num_targets:,}, the number of targets", f"{job['top_k']:,}")
    endpoint_types, out = dict.fromkeys(relation[::2]), Path(job["out"])
    named_sources, named_targets = (
        named_nodes(job, data, name, wanted) for name, wanted in ((relation[0], job["nodes"]), (relation[2], None))
    )
    if not is_table(out) and named_sources.nodes is not None:
        raise CohortError("--nodes", "a table as --out beside --top-k", out.name, "--out NAME.parquet")
    shape = edges.num_sources, job["top_k"]
    with temporary_folder(out) as folder:
        best = new_rows(shape, folder / "best.npy" if is_table(out) else file, np.int64)
        best_scores = new_rows(shape, folder / "scores.npy") if is_table(out) else None
        rows = {}
        for number, name in enumerate(endpoint_types):
            row_shape = data.node_types[name].num_nodes, model.num_classes
            rows[name] = new_rows(row_shape, folder / f"rows-{number}.npy")
            memory = run_layers(layers_of(model, data, job, device, name), rows[name], None, job["quiet"])
        sources, others = rows[next(iter(endpoint_types))], rows[list(endpoint_types)[-1]]
        with progress_of("comparing sources with targets", edges.num_sources, job["quiet"]) as advance:
            find_best_targets(
                *(decoder.to(device), sources, others, edges, best, device, advance),
                best_scores=best_scores,
                exclude_seen=job["exclude_seen"] is not False and options.task_name is None,
                there=targets_there(data, relation[2], job["at_time"]),
                until=job["at_time"],
            )
        if best_scores is not None:
            write_table(file, out.suffix, target_blocks(best, best_scores, named_sources, named_targets))
            return f"the best {job['top_k']} targets of {named_sources.num_rows:,} sources", memory
    return f"int64 {list(best.shape)}", memory


def targets_there(data: StoredGraph, node_type: str, at_time: int | None) -> np.ndarray | None:
    """int64 [any], the nodes that exist at a time; None: all."""
    times = data.node_types[node_type].node_times
    return None if times is None or at_time is None else np.flatnonzero(times <= at_time)


def fill_scores(
    job: dict,
    data: StoredGraph,
    layers: Layerwise,
    best: Callable[[Tensor], Tensor] | None,
    file: Path,
    shape: tuple[int, ...],
    dtype: np.dtype,
    early: EarlyWork,
) -> tuple[np.ndarray, MemoryPlan]:
    """Writes the scores of all nodes, or what `best` makes of them, into a .npy file; returns them, mapped, and where
    hidden layers were. With --keep the rows of all layers stay, and with --update only what changed is computed."""
    with all_rows(job, data, layers, file if best is None else None, early) as rows:
        if rows is None:
            scores = new_rows(shape, file, dtype)
            return scores, run_layers(layers, scores, best, job["quiet"])
        if best is None and isinstance(rows, UpdatedRows):
            rows.write(file, shape[0])
            scores = np.load(file, mmap_mode="r+")  # torch warns of arrays that it could not write
        else:
            take = keep_scores(scores := new_rows(shape, file, dtype), best)
            for first in range(0, shape[0], ROWS_AT_ONCE):
                take(first, rows.piece(first, min(first + ROWS_AT_ONCE, shape[0])))
    return scores, replace(layers.memory, kept_in=[KeptIn.FILES] * len(layers.gives))


@contextlib.contextmanager
def all_rows(
    job: dict, data: StoredGraph, layers: Layerwise, scores: Path | None, early: EarlyWork
) -> Iterator[ArrayRows | UpdatedRows | None]:
    """The rows of the last layer, for --keep and --update, while their files are there. None: rows of earlier are of no
    use, and none are kept.

    Args:
        scores: a file that the rows of the last layer are written to, if there is one.
    """
    if job["keep"] is None and job["update"] is None:
        yield None
        return
    made = made_of(Path(job["run"]), layers.model, layers.gives[-1][0], (job["at_time"], layers.spans), layers.device)
    before = None if job["update"] is None else read_before(Path(job["update"]), data.types, made)
    with contextlib.ExitStack() as stack:
        kept, reached, text = None, None, "layers"
        if job["keep"] is not None:
            kept = stack.enter_context(kept_folder(Path(job["keep"]), data.types, made))
        if before is not None:  # most of its rows are going to be in new files
            stack.enter_context(early.copies)
            begin_copies(early.copies, layers, kept, scores, before)
        digests = digests_of(data, layers.model, layers.spans, early.digests())
        if kept is not None:
            stack.enter_context(FileWriter()).write(partial(keep_digests, kept, digests))
        if before is not None:
            reached = reached_by(digests.since(before.digests()), layers, data, early.marks())
            if reached is None:
                LOG.info("what has changed reaches most of the graph: all is computed")
                early.copies.stop()
            else:
                text = "layers, where the graph has changed"
        if reached is None and kept is None:
            yield None
            return
        work = layers.work if reached is None else reached.work
        folder = stack.enter_context(temporary_folder(Path(job["out"])))
        with progress_of(text, work, job["quiet"]) as advance:
            if before is None or reached is None:
                rows: ArrayRows | UpdatedRows = write_layers(layers, kept or folder, advance)
            else:
                rows = update_layers(layers, folder, kept, advance, before, reached, early.copies)
        yield rows
    if reached is not None and not job["quiet"]:
        LOG.info(f"{work / max(1, layers.work):.2%} of the edges and nodes of all layers were computed again")


def run_layers(
    layers: Layerwise, scores: np.ndarray, best: Callable[[Tensor], Tensor] | None, quiet: bool
) -> MemoryPlan:
    """Fills `scores`, with what `best` makes of them, and returns where hidden layers were."""
    text = "layers, hidden ones in files" if layers.memory.file_bytes > 0 else "layers"
    with progress_of(text, layers.work, quiet) as advance:
        layers.run(keep_scores(scores, best), advance)
    return layers.memory


@contextlib.contextmanager
def progress_of(text: str, total: int, quiet: bool) -> Iterator[Callable[[int], None]]:
    """A progress bar, or lines where standard error is no terminal; gives what advances it."""
    columns = (TextColumn(text), BarColumn(bar_width=None), TaskProgressColumn(), TimeRemainingColumn())
    console = Console(stderr=True, quiet=quiet)
    with Progress(*columns, console=console) as progress:
        bar, lines = progress.add_task("", total=total), ProgressLines(console.print)

        def advance(done: int) -> None:
            progress.advance(bar, done)
            if not console.is_terminal:
                lines.at(text, progress.tasks[bar].completed / max(1, total))

        yield advance


@contextlib.contextmanager
def replacing_explained(job: dict, begun: BegunFile | None = None) -> Iterator[Path]:
    """base.files.replacing() of the output file; raises CohortError where a disk or memory has no room."""
    out = Path(job["out"])
    try:
        with replacing(out, begun=begun) as temporary:
            yield temporary
    except OSError as error:
        place, hint = str(out), "check the permissions of its folder: ls -ld"
        if found_full(error):
            hint = "the disk must hold it, and hidden layers beyond --memory"
        if job["keep"] is not None and Path(error.filename or out).is_relative_to(job["keep"]):
            place, hint = f"--keep {job['keep']}", ROOM_HINT
        raise CohortError(place, "a file that can be written", found_full(error) or why(error), hint) from error
    except (MemoryError, RuntimeError) as error:
        # PyTorch has a type of its own only for the memory of GPUs.
        is_of_memory = isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in str(error)
        if not is_of_memory:
            raise
        place, expected = "--memory", f"{format_bytes(job['memory_bytes'])} that can be had"
        hint = "give less; other programs may have taken some since"
        if isinstance(error, torch.OutOfMemoryError):
            place, expected = "--device cuda", "memory of the GPU for a piece of a layer"
            hint = "predict when no other program uses it, or with --device cpu"
        raise CohortError(place, expected, (str(error) or "too little").splitlines()[0], hint) from error


def stop(number: int, frame) -> None:
    """Ends the program by an exception, which removes its files; further signals of this number are ignored."""
    signal.signal(number, signal.SIG_IGN)
    leave(number, frame)


def main(argument: str, early: EarlyWork) -> int:
    job = json.loads(argument)
    _native.end_with_parent(job["owner_pid"], signal.SIGTERM)
    signal.signal(signal.SIGTERM, stop)
    try:
        with lost_signals_repeated(), shown("stdout"):
            predict_nodes(job, early)
    except CohortError as error:
        print(f"cohort: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0
