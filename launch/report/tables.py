"""What a run did, and how runs differ, as tables for a terminal or a page."""

import os
from collections import Counter
from pathlib import Path
from statistics import median

from cohort_gnn.base.tables import TextTable
from cohort_gnn.base.units import format_bytes, format_seconds
from cohort_gnn.dataset.prepared import has_encoded_rows
from cohort_gnn.launch.report.results import LISTS, ROWS, ReadKind, Run, one_line, ranks_of
from cohort_gnn.spec.metrics import metric_text
from cohort_gnn.spec.results import CONSTANT, TIERS, TIMES, GraphSizes, hardly_better

LONG_WAIT = 0.1  # of an epoch
DISPENSABLE = ("sample s", "fetch s", "all-reduce s", "loss")
TIME_NAMES = ("epoch s", "wait s", "train s", "all-reduce s", "sample s", "fetch s")


def short_tables(run: Run) -> list[TextTable]:
    """What a terminal shows of a run."""
    reads = (tier_table(run, kind) for kind in (ROWS, LISTS))
    parts = [parts_table(run)] if run.parts else []
    return [epoch_table(run, is_short=True), *reads, *parts, course_table(run), result_table(run)]


def epoch_table(run: Run, is_short: bool = False) -> TextTable:
    """A row per epoch and rank: where its time went. Short: without most epochs of a long run."""
    epochs = run.epochs if len(run.epochs) <= 8 or not is_short else run.epochs[:3] + run.epochs[-4:]
    scores = list(run.summary["val_metrics"])[:1]  # the one by which epochs are compared
    rows = []
    for epoch in epochs:
        epoch_cells = [_or_none(epoch["loss"], lambda loss: f"{loss:.4f}")]
        epoch_cells += [_scores(epoch["val_metrics"]).get(name, "-") for name in scores]
        for rank_name, times in zip(run.rank_names, ranks_of(epoch), strict=True):
            rows.append([str(epoch["epoch"] + 1), rank_name, *(_seconds(times[name]) for name in TIMES), *epoch_cells])
            epoch_cells = [""] * len(epoch_cells)
    note = "wait + train + all-reduce is the epoch; sample and fetch run in the sampler, in parallel"
    if len(epochs) < len(run.epochs):
        note += f"; {len(run.epochs) - len(epochs)} epochs in the middle are left out here"
    columns = ["epoch", "rank", *TIME_NAMES, "loss", *(f"val {name}" for name in scores)]
    return TextTable("Time of each epoch", columns, rows, note, DISPENSABLE)


def tier_table(run: Run, kind: ReadKind) -> TextTable:
    """A row per rank and tier: what a training batch read from it, and what the plan expected, if it did; without tiers
    from which nothing was read or planned."""
    uses = [run.uses(kind, rank) for rank in range(len(run.rank_names))]
    is_planned = any(use.planned_share is not None for tiers in uses for use in tiers.values())
    rows = []
    for rank_name, tiers in zip(run.rank_names, uses, strict=True):
        for tier, use in tiers.items():
            if not (use.reads or use.planned_share):
                continue
            row = [rank_name, tier, f"{use.reads:,.1f}", _percent(use.share), format_bytes(use.bytes)]
            row += [_or_none(use.gb_per_s, lambda rate: f"{rate:.2f}")] * (kind is ROWS)
            row += [_or_none(use.planned_share, _percent), _or_none(use.planned_bytes, format_bytes)] * is_planned
            rows.append(row)
    columns = ["rank", "from", kind.count, f"{kind.count} %", "bytes"]
    columns += ["GB/s"] * (kind is ROWS) + [f"{kind.count} % planned", "bytes planned"] * is_planned
    note = ""
    if kind is ROWS:
        note = "local: this GPU's memory; peer: another GPU's; recent: the pool of rows of earlier batches"
        note += "; disk: the file of encoded rows; remote: the memory of another machine"
    if kind is ROWS and is_planned and run.summary["device"] == "cpu":
        note += "; on the CPU, a cache is planned but has no effect"
    return TextTable(f"{kind.title} of a batch", columns, rows, note)


def held_table(run: Run) -> TextTable:
    """A row per rank: what its cache holds, as planned."""
    slabs = (("features", ROWS), ("topology", LISTS))
    rows = [
        [rank_name, *(format_bytes(held[f"{name}_bytes"]) for name in ("budget", "index", "used"))]
        + [text for slab, kind in slabs for text in (f"{held[slab][kind.count]:,}", format_bytes(held[slab]["bytes"]))]
        + [f"{held['alpha']:.3f}"]
        for rank_name, held in zip(run.rank_names[: len(run.held)], run.held, strict=True)
    ]
    columns = ["rank", "budget", "index", "used", "rows", "row bytes", "lists", "list bytes", "alpha"]
    return TextTable("Cache", columns, rows, "alpha: the share of neighbour lists")


def parts_table(run: Run) -> TextTable:
    """A row per node type with features and per relation: what the cache of each rank holds of it, as planned."""
    columns = ["of", "all", *run.rank_names[: len(run.held)]]
    rows = [
        [one_line(part.name), f"{part.size:,}", *(f"{count:,} ({format_bytes(size)})" for count, size in part.held)]
        for part in run.parts
    ]
    return TextTable("Rows and lists by type", columns, rows, "rows of node types with features; lists of relations")


def result_table(run: Run) -> TextTable:
    """How far the run came, and how good the model is."""
    wanted, best = run.options.get("epochs"), run.summary["best_epoch"]
    rows = [["epochs", f"{len(run.epochs)} of {one_line(wanted)}" if wanted else str(len(run.epochs))]]
    rows += [["loss", one_line(run.summary["loss_name"])]] if run.summary.get("loss_name") else []
    rows += [["best epoch", str(best + 1)]] if best is not None and run.summary["val_metrics"] else []
    for split, title in (("val", "validation"), ("test", "the test")):
        scores = _scores(run.summary[f"{split}_metrics"])
        rows += [[f"{name} in {title}", text] for name, text in scores.items()]
        baseline, name = run.summary["baselines"].get(split), next((name for name in scores if name in CONSTANT), None)
        if baseline is not None and name:
            rows.append([f"{name} for {CONSTANT[name]} alone", metric_text(name, baseline)])
    return TextTable("Result", ["", "of the run"], rows, "; ".join(cautions(run)))


def cautions(run: Run) -> list[str]:
    """What a reader of the result should know: the model has hardly learned anything, or has diverged."""
    warnings = []
    for split, title in (("test", "test"), ("val", "validation")):
        scores, baseline = run.summary[f"{split}_metrics"], run.summary["baselines"].get(split)
        comparisons = [hardly_better(name, value, baseline) for name, value in scores.items() if name in CONSTANT]
        if any(comparisons):
            warnings += [f"{title} {comparison}" for comparison in comparisons if comparison]
            break
    diverged = [epoch["epoch"] + 1 for epoch in run.epochs if epoch["loss"] is None]
    return warnings + [f"the loss was not finite in epoch {epoch}" for epoch in diverged[:1]]


def headline(run: Run) -> tuple[str, str]:
    """(how good the model is, what this number is): of the test, or else of validation."""
    for split, title in (("test", "in the test"), ("val", "in validation")):
        for name, text in _scores(run.summary[f"{split}_metrics"]).items():
            best = run.summary["best_epoch"]
            suffix = f", with the weights of epoch {best + 1} of {len(run.epochs)}" if best is not None else ""
            return text, f"{name} {title}{suffix}"
    return "-", "no test and no validation"


def about_table(run: Run) -> TextTable:
    """What ran: the command, the data set, when, where, with what, how long."""
    rows = [["command", one_line(start["command"])] for start in run.starts]
    rows.append(["data set", one_line(run.options.get("dataset"))])
    rows += [["graph", _described(run.graph)]] if run.graph else []
    model = [
        f"{name} {one_line(run.options[name]).strip('[]')}"
        for name in ("model", "fanout", "hidden")
        if name in run.options
    ]
    rows += [["model", ", ".join(model)]] if model else []
    for i, start in enumerate(run.starts):
        rows.append(["resumed" if i else "started", one_line(start["date"])])
    for start in run.starts[-1:]:
        gpus = Counter(start["gpus"])
        names = ", ".join(f"{count} x {name}" if count > 1 else name for name, count in gpus.items())
        job = f", SLURM job {start['slurm_job']}" if "slurm_job" in start else ""
        rows.append(["host", one_line(f"{start['host']}{job}; {start['cpu']}")])
        rows.append(["GPUs", one_line(names) or "none: on the CPU"])
        rows.append(["versions", one_line(", ".join(f"{name} {text}" for name, text in start["versions"].items()))])
    rows.append(["ranks", ", ".join(run.rank_names)])
    rows.append(["time", f"{format_seconds(run.summary['seconds'])}, {len(run.epochs)} epochs"])
    return TextTable("What ran", ["", "of the run"], rows)


def _described(graph: GraphSizes) -> str:
    splits = ", ".join(f"{name} {count:,}" for name, count in graph["splits"].items())
    parts = [f"{graph['num_nodes']:,} nodes, {graph['num_edges']:,} edges"]
    if graph.get("node_types"):
        parts.append(", ".join(f"{name} {count:,}" for name, count in graph["node_types"].items()))
        parts.append(f"{len(graph.get('edge_types', {}))} edge types")
    dims = [f"{name} {dim}".strip() for name, dim in graph["feature_dims"].items()]
    parts += [f"features {', '.join(dims)}", f"{graph['num_classes']} classes or labels", f"nodes of splits: {splits}"]
    return one_line("; ".join(parts))


def course_table(run: Run) -> TextTable:
    """What the time went to besides the epochs' steps, and how fast the last epoch could have been."""
    rows = []
    if run.summary["start"]:
        rows.append(["first batch", describe_start(run.summary["start"])])
    if len(run.epochs) > 1:
        between = median(epoch["between_seconds"] for epoch in run.epochs[1:])
        validation = median(epoch["validate_seconds"] for epoch in run.epochs[:-1])
        text = f"{_seconds(between)} s (median), of which validation {_seconds(validation)} s"
        rows.append(["between two epochs", text])
    last, before = run.epochs[-1], " before the last hop" if run.summary["last_hop_global"] else ""
    edges, nodes = (last[name] / max(1, last["num_batches"]) for name in ("num_edges", "num_nodes"))
    rows.append(["a batch of the last epoch", f"{edges:,.0f} edges, {nodes:,.0f} nodes{before}"])
    if _last_floor(run):
        floor, epoch = run.summary["floor"]["epochs"][-1], run.epochs[-1]
        set_by = f"{_seconds(floor['seconds'])} s, set by {one_line(floor['bottleneck'])}"
        rows.append(["floor of the last epoch", f"{set_by}; it took {_seconds(epoch['seconds'])} s"])
    if run.summary["rows_in_place"]:
        rows.append(["feature rows", "read from the data set's file without a copy; each read counts"])
    if run.summary["coarse_epochs"]:
        error = f"within {run.summary['coarse_error']:.4g} of each feature's size"
        rows.append(["coarse epochs", f"features of the first {run.summary['coarse_epochs']} epochs: {error}"])
    return TextTable("Course", ["", "of the run"], rows, advice(run))


def describe_start(start: dict) -> str:
    """What came before the first batch, the longest part first; what takes no time is left out."""
    texts = []
    for part in sorted(start["parts"], key=lambda part: -part["seconds"]):
        size = f" ({format_bytes(part['bytes'])})" if part["bytes"] else ""
        texts += [f"{one_line(part['part'])}{size} {part['seconds']:.1f}"] * (part["seconds"] >= 0.05)
    packages = f"after {start['seconds']:.1f} s: the trainer's packages {start['packages_seconds']:.1f}"
    return packages + ("; in parallel: " + ", ".join(texts) if texts else "")


def advice(run: Run) -> str:
    """What would shorten a run's wait for rows from host memory or other machines; "" where it is short, or nothing
    here."""
    times = median_times(run)
    share = times["wait_seconds"] / times["seconds"] if times["seconds"] else 0.0
    on_gpu, floor, cures = run.summary["device"] != "cpu", _last_floor(run), []
    if share < LONG_WAIT or times["fetch_seconds"] <= times["sample_seconds"]:
        return ""
    if on_gpu and not run.held:
        cures.append("--cache-ratio auto keeps the rows that are read most in GPU memory")
    if floor and floor["bottleneck"] == "network":
        whose = "of other machines"
        cures.append("--host-bytes with room for more than the machine's own part keeps rows of other machines, too")
    elif on_gpu and run.uses(ROWS)["host"].bytes > 0:
        whose, dataset = "from host memory", str(run.options.get("dataset"))
        if os.path.isdir(dataset) and not has_encoded_rows(Path(dataset)):
            cures.append(f"cohort dataset prepare {one_line(dataset)} encodes the rows, without loss")
        if run.options.get("reuse") is False:
            cures.append("--reuse keeps rows of earlier batches")
    else:
        return ""
    return f"{100 * share:.0f} % of an epoch is waiting for rows {whose}: {'; '.join(cures)}" if cures else ""


def _last_floor(run: Run) -> dict | None:
    """The time floor of the last epoch, where it is known."""
    floor = run.summary["floor"]
    return floor["epochs"][-1] if floor and floor["epochs"] else None


def compare_tables(runs: list[Run], names: list[str]) -> list[TextTable]:
    """Tables with a column per run: what differs; how good the models are; times and reads."""
    columns = ["", *names]
    differing = TextTable("What differs", columns, _differing_rows(runs))
    rows = []
    for title, part in (("test", "test"), ("validation", "val")):
        scores = [_scores(run.summary[f"{part}_metrics"]) for run in runs]
        for name in dict.fromkeys(name for run_scores in scores for name in run_scores):
            row = f"{title} %" if name == "accuracy" else f"{title} {name}"  # accuracy needs no name
            rows.append([row, *(run_scores.get(name, "-").removesuffix(" %") for run_scores in scores)])
    rows.append(["epochs", *(str(len(run.epochs)) for run in runs)])
    note = "medians of the first rank's epochs, without the first epoch; rows, lists and bytes are per training batch"
    if any(len(run.epochs) == 1 for run in runs):
        note += "; for a run of one epoch, of this epoch, which includes the start-up"
    return [
        differing,
        TextTable("Results", columns, rows),
        TextTable("Time and bytes", columns, _time_rows(runs), note),
    ]


def _differing_rows(runs: list[Run]) -> list[list[str]]:
    """Options, and what is known of the last start of each run, where runs differ."""
    options = dict.fromkeys(name for run in runs for name in run.options)
    rows = [[name, *(_or_none(run.options.get(name), one_line) for run in runs)] for name in options]
    starts = [run.starts[-1] if run.starts else {} for run in runs]
    for name in ("date", "host", "gpus", "cpu", "versions"):
        rows.append([name, *(_or_none(start.get(name), _joined) for start in starts)])
    rows.append(["graph", *(_or_none(run.graph, _described) for run in runs)])
    return [row for row in rows if len(set(row[1:])) > 1]


def _joined(value) -> str:
    if isinstance(value, dict):
        value = [f"{name} {text}" for name, text in value.items()]
    return one_line(", ".join(value) if isinstance(value, list) else value)


def _time_rows(runs: list[Run]) -> list[list[str]]:
    rows, times = [], [median_times(run) for run in runs]
    for name, key in zip(TIME_NAMES, TIMES, strict=True):
        rows.append([f"median {name}", *(_seconds(run_times[key]) for run_times in times)])
    first = times[0]["seconds"]
    rows.append(["epoch / epoch of the first run", *(f"{t['seconds'] / first:.2f}" if first else "-" for t in times)])
    floors = [_last_floor(run) for run in runs]
    rows.append(["epoch floor s", *(_or_none(floor, lambda bound: _seconds(bound["seconds"])) for floor in floors)])
    rows.append(["floor set by", *(_or_none(floor, lambda bound: one_line(bound["bottleneck"])) for floor in floors)])
    for kind in (ROWS, LISTS):
        rows += _tier_rows(runs, kind)
    rows.append(["whole run", *(format_seconds(run.summary["seconds"]) for run in runs)])
    return rows


def _scores(metrics: dict[str, float | None]) -> dict[str, str]:
    """How good the model was, by name."""
    return {name: metric_text(name, value) for name, value in metrics.items()}


def median_times(run: Run) -> dict[str, float]:
    """Medians of the first rank's times over the epochs after the first (over the only one where there is no other)."""
    epochs = [ranks_of(epoch)[0] for epoch in run.settled]
    return {name: median(epoch[name] for epoch in epochs) for name in TIMES}


def _tier_rows(runs: list[Run], kind: ReadKind) -> list[list[str]]:
    """Rows of the tiers that some run reads from, or plans to."""
    uses = [run.uses(kind) for run in runs]
    rows = []
    for tier in TIERS:
        tier_uses = [run_uses[tier] for run_uses in uses]
        if not any(use.reads or use.planned_share for use in tier_uses):
            continue
        rows.append([f"{kind.count} % {tier}", *(_percent(use.share) for use in tier_uses)])
        if any(use.planned_share is not None for use in tier_uses):
            planned = (_or_none(use.planned_share, _percent) for use in tier_uses)
            rows.append([f"{kind.count} % {tier}, planned", *planned])
        rows.append([f"bytes of {kind.count} {tier}", *(format_bytes(use.bytes) for use in tier_uses)])
        if kind is ROWS:
            rows.append([f"GB/s {tier}", *(_or_none(use.gb_per_s, lambda rate: f"{rate:.2f}") for use in tier_uses)])
    return rows


def _seconds(seconds: float) -> str:
    return f"{seconds:.4f}"


def _percent(share: float) -> str:
    return f"{100 * share:.2f}"


def _or_none(value, as_text) -> str:
    return "-" if value is None else as_text(value)
