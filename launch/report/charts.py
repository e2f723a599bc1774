"""Charts of runs as PNGs, narrow enough for the screen of a phone: wide pages show several side by side."""

import io
import math
from collections.abc import Callable

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.units import format_bytes
from cohort_gnn.launch.report.results import ReadKind, Run, TierUse, ranks_of
from cohort_gnn.spec.metrics import is_share

DPI = 150
INCHES = 4.8  # of a chart's width
PARTS = {"wait_seconds": "#d1495b", "train_seconds": "#30638e", "all_reduce_seconds": "#edae49"}  # of an epoch
COLORS = ("#30638e", "#d1495b", "#2a9d5c", "#edae49", "#7b4fa3", "#4fb3bf", "#8c6d46", "#777777")  # of runs


def draw_loss(runs: list[Run], names: list[str]) -> bytes:
    """A line per run: the training loss by epoch."""
    figure, axes = figure_of(INCHES, height=3)
    for i, (run, name) in enumerate(zip(runs, names, strict=True)):
        losses = [math.nan if epoch["loss"] is None else epoch["loss"] for epoch in run.epochs]
        _line(axes, run, losses, name, COLORS[i % len(COLORS)])
    return _curves(figure, axes, "loss of training", len(runs))


def draw_validation(runs: list[Run], names: list[str], metric: str) -> bytes:
    """A line per run: a validation metric by epoch; a ring marks the epoch whose weights are kept."""
    figure, axes = figure_of(INCHES, height=3)
    factor, unit = (100, " %") if is_share(metric) else (1, "")
    for i, (run, name) in enumerate(zip(runs, names, strict=True)):
        scores = [epoch["val_metrics"].get(metric) for epoch in run.epochs]
        values = [math.nan if value is None else factor * value for value in scores]
        color, best = COLORS[i % len(COLORS)], run.summary["best_epoch"]
        _line(axes, run, values, name, color)
        for epoch, value in zip(run.epochs, values, strict=True):
            if epoch["epoch"] == best:
                axes.plot([best + 1], [value], "o", markersize=10, markerfacecolor="none", color=color)
    return _curves(figure, axes, f"{metric} in validation{unit and ', %'}", len(runs))


def _line(axes, run: Run, values: list[float], name: str, color: str) -> None:
    marker = "o" if len(values) <= 40 else ""
    epochs = [epoch["epoch"] + 1 for epoch in run.epochs]
    axes.plot(epochs, values, marker=marker, markersize=4, color=color, label=plain(name))


def _curves(figure, axes, label: str, num_runs: int) -> bytes:
    axes.set_xlabel("epoch")
    axes.set_ylabel(label)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(alpha=0.3)
    if num_runs > 1:
        _legend(figure, axes, 1)
    return png_of(figure)


def draw_epochs(run: Run) -> bytes:
    """A stacked bar per epoch and rank: wait, train, all-reduce."""
    num_ranks = len(run.rank_names)
    bars = [times for epoch in run.epochs for times in ranks_of(epoch)]
    width = 0.8 / num_ranks
    lefts = [epoch["epoch"] + 0.6 + width * rank for epoch in run.epochs for rank in range(num_ranks)]
    figure, axes = figure_of(INCHES, height=3)
    _stack(axes, lefts, 0.9 * width, bars)
    _legend(figure, axes, 3)
    axes.set_xlabel("epoch")
    axes.xaxis.get_major_locator().set_params(integer=True)
    return png_of(figure)


def draw_bytes(run: Run, kind: ReadKind) -> bytes:
    """A bar per tier and rank: bytes that a batch read; a mark where the plan expected them."""
    return _draw_tiers(
        run, kind, f"{kind.title.lower()} of a batch", lambda use: (use.bytes, use.planned_bytes), format_bytes
    )


def draw_hits(run: Run, kind: ReadKind) -> bytes:
    """A bar per tier and rank: its share of the reads; a mark where the plan expected it."""

    def as_text(share: float) -> str:
        return f"{100 * share:.3g} %"

    return _draw_tiers(run, kind, f"share of {kind.count}", lambda use: (use.share, use.planned_share), as_text)


def draw_times(times: list[dict], names: list[str]) -> bytes:
    """A stacked bar for each of `times`: its wait, train, all-reduce."""
    figure, axes = figure_of(INCHES, height=3.4)
    stack_times(axes, times)
    axes.set_xticks(range(len(times)), map(plain, names), rotation=20, ha="right")
    _legend(figure, axes, 3)
    return png_of(figure)


def can_draw() -> bool:
    """Whether matplotlib is there."""
    try:
        import matplotlib.figure  # noqa: F401
    except ModuleNotFoundError:
        return False
    return True


def figure_of(inches: float, columns: int = 1, height: float = 4, rows: int = 1):
    """(figure, axes), so many inches wide and high.

    Raises:
        CohortError: matplotlib is not there.
    """
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise CohortError("charts", "matplotlib", "none", "pip install matplotlib") from error
    figure = Figure(figsize=(inches, height), layout="constrained")
    return figure, figure.subplots(rows, columns)


def plain(text: str) -> str:
    """Text whose dollar signs matplotlib does not take for mathematics."""
    return text.replace("$", r"\$")


def _stack(axes, lefts: list[float], width: float, bars: list[dict]) -> None:
    """Stacked bars of PARTS in ascending order of `lefts`: an outline with gaps a part, however many bars there are."""
    edges = [edge for left in lefts for edge in (left, left + width)]
    below = [0.0] * len(bars)
    for part, color in PARTS.items():
        if part == "all_reduce_seconds" and not any(bar[part] for bar in bars):
            continue
        above = [low + bar[part] for low, bar in zip(below, bars, strict=True)]
        name = part.removesuffix("_seconds").replace("_", "-")
        axes.stairs(_gapped(above), edges, baseline=_gapped(below), fill=True, color=color, label=name)
        below = above
    axes.margins(x=0.02, y=0.1)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("seconds")


def stack_times(axes, times: list[dict]) -> None:
    """A stacked bar for each of `times`, with the epoch's seconds above it."""
    _stack(axes, [i - 0.3 for i in range(len(times))], 0.6, times)
    for i, epoch in enumerate(times):
        axes.text(i, sum(epoch[part] for part in PARTS), f"{epoch['seconds']:.4g} s", ha="center", va="bottom", size=9)


def _gapped(values: list[float]) -> list[float]:
    """[1, 2] -> [1, nan, 2]"""
    return [point for value in values for point in (value, math.nan)][:-1]


def _draw_tiers(
    run: Run, kind: ReadKind, label: str, pick: Callable[[TierUse], tuple], as_text: Callable[[float], str]
) -> bytes:
    """A group of bars per used or planned tier, with a bar per rank; black lines are what the plan expected."""
    figure, axes = figure_of(INCHES, height=3)
    width, planned, tiers = 0.8 / len(run.rank_names), [], run.used_tiers(kind)
    for rank, rank_name in enumerate(run.rank_names):
        uses = run.uses(kind, rank)
        values = [pick(uses[tier]) for tier in tiers]
        middles = [i - 0.4 + width * (rank + 0.5) for i in range(len(tiers))]
        bars = axes.bar(middles, [used for used, _ in values], 0.9 * width, label=plain(rank_name))
        if len(run.rank_names) * len(tiers) <= 4:
            axes.bar_label(bars, [as_text(used) for used, _ in values], fontsize=9)
        planned += [(middle, plan) for middle, (_, plan) in zip(middles, values, strict=True) if plan is not None]
    if planned:
        x_limits = [[middle + side * width / 2 for middle, _ in planned] for side in (-1, 1)]
        axes.hlines([plan for _, plan in planned], *x_limits, colors="black", linewidth=2, label="planned")
    axes.set_xticks(range(len(tiers)), tiers)
    axes.set_xlim(-0.7, len(tiers) - 0.3)
    axes.yaxis.set_major_formatter(lambda y, _: as_text(y))
    axes.margins(y=0.15)
    axes.set_ylabel(label)
    if planned or len(run.rank_names) > 1:
        _legend(figure, axes, 4)
    return png_of(figure)


def _legend(figure, axes, columns: int) -> None:
    """Below the chart, so that it has the whole width."""
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=columns, frameon=False)


def png_of(figure) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=DPI)
    return file.getvalue()
