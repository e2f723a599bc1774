"""Charts of runs as PNGs, and the page that holds them beside the tables."""

import base64
import html
import io
import math
from collections.abc import Callable

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.tables import Table
from cohort_gnn.base.units import format_bytes
from cohort_gnn.launch.report.results import LISTS, ROWS, Run, TierUse, ranks_of
from cohort_gnn.spec.results import TIERS

DPI = 120
PARTS = {"wait_seconds": "#d1495b", "train_seconds": "#30638e", "all_reduce_seconds": "#edae49"}  # of an epoch
ON_THE_RIGHT = {"loc": "upper left", "bbox_to_anchor": (1, 1)}  # of a chart: its legend

_STYLE = """
body { font: 15px/1.5 sans-serif; max-width: 75em; margin: 2em auto; padding: 0 1em; color: #222 }
table { border-collapse: collapse; margin: 0.5em 0 }
th, td { padding: 0.15em 0.8em; text-align: right; border-bottom: 1px solid #ddd; font-variant-numeric: tabular-nums }
th:first-child, td:first-child { text-align: left }
img { max-width: 100%; height: auto }
"""


def page(title: str, tables: list[Table], charts: dict[str, bytes]) -> str:
    """An HTML page that needs nothing beside itself: no script, no network.

    Args:
        charts: {what it shows: PNG}, shown above the tables.
    """
    escaped = html.escape(title)
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    lines = [
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        f"<title>{escaped}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<h1>{escaped}</h1>",
    ]
    for shown, png in charts.items():
        data = base64.b64encode(png).decode()
        lines.append(f'<p><img alt="{html.escape(shown)}" src="data:image/png;base64,{data}"></p>')
    lines += map(_table_html, tables)
    return "\n".join([*lines, "</body>\n</html>\n"])


def _table_html(table: Table) -> str:
    def row(cells: list[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    head, body = row(table.columns, "th"), "\n".join(row(cells, "td") for cells in table.rows)
    note = f"\n<p>{html.escape(table.note)}</p>" if table.note else ""
    return f"<h2>{html.escape(table.title)}</h2>\n<table>\n{head}\n{body}\n</table>{note}"


def draw_epochs(run: Run) -> bytes:
    """A stacked bar an epoch and rank: wait, train, all-reduce."""
    num_ranks = len(run.places)
    bars = [times for epoch in run.epochs for times in ranks_of(epoch)]
    width = 0.8 / num_ranks
    lefts = [epoch["epoch"] + 0.6 + width * rank for epoch in run.epochs for rank in range(num_ranks)]
    figure, axes = figure_of(min(max(3 + 0.15 * len(bars), 8), 20))
    _stack(axes, lefts, 0.9 * width, bars)
    axes.legend(**ON_THE_RIGHT)
    side_by_side = f"; side by side: {plain(', '.join(run.places))}" if num_ranks > 1 else ""
    axes.set_xlabel(f"epoch{side_by_side}")
    axes.xaxis.get_major_locator().set_params(integer=True)
    return png_of(figure)


def draw_bytes(run: Run) -> bytes:
    """A bar a tier and rank: bytes that a batch read; a mark where the plan expected them."""
    return _draw_tiers(run, "bytes per batch", lambda use: (use.bytes, use.planned_bytes), format_bytes)


def draw_hits(run: Run) -> bytes:
    """A bar a tier and rank: its share of the reads; a mark where the plan expected it."""
    return _draw_tiers(run, "share of reads", lambda use: (use.share, use.planned_share), lambda y: f"{100 * y:.4g} %")


def draw_times(times: list[dict], names: list[str]) -> bytes:
    """A stacked bar for each of `times`: its wait, train, all-reduce."""
    figure, axes = figure_of(min(max(3 + len(times), 8), 20))
    stack_times(axes, times)
    axes.set_xticks(range(len(times)), map(plain, names), rotation=20, ha="right")
    axes.legend(**ON_THE_RIGHT)
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
    for i, each in enumerate(times):
        axes.text(i, sum(each[part] for part in PARTS), f"{each['seconds']:.4g} s", ha="center", va="bottom", size=9)


def _gapped(values: list[float]) -> list[float]:
    """[1, 2] -> [1, nan, 2]"""
    return [each for value in values for each in (value, math.nan)][:-1]


def _draw_tiers(run: Run, label: str, pick: Callable[[TierUse], tuple], as_text: Callable[[float], str]) -> bytes:
    """For rows and for lists a group of bars a tier, in it one a rank; a black line is what the plan expected."""
    figure, both = figure_of(12, columns=2)
    width = 0.8 / len(run.places)
    for axes, kind in zip(both, (ROWS, LISTS), strict=True):
        planned = []
        for rank, place in enumerate(run.places):
            values = [pick(use) for use in run.uses(kind, rank).values()]
            middles = [tier - 0.4 + width * (rank + 0.5) for tier in range(len(TIERS))]
            bars = axes.bar(middles, [found for found, _ in values], 0.9 * width, label=f"{plain(place)}, measured")
            if len(run.places) <= 2:
                axes.bar_label(bars, [as_text(found) for found, _ in values], fontsize=8)
            planned += [(middle, plan) for middle, (_, plan) in zip(middles, values, strict=True) if plan is not None]
        ends = [[middle + side * width / 2 for middle, _ in planned] for side in (-1, 1)]
        name = "planned" if planned else None
        axes.hlines([plan for _, plan in planned], *ends, colors="black", linewidth=2, label=name)
        axes.set_xticks(range(len(TIERS)), TIERS)
        axes.yaxis.set_major_formatter(lambda y, _: as_text(y))
        axes.margins(y=0.15)
        axes.set_title(kind.title)
        axes.set_ylabel(label)
    both[-1].legend(*both[0].get_legend_handles_labels(), **ON_THE_RIGHT)
    return png_of(figure)


def png_of(figure) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=DPI)
    return file.getvalue()
