"""What bench/epochs.py has measured, drawn: bars of wait and train, a panel a shape.

    python bench/figure.py FILE.jsonl ... [--png FILE]

Of the IBP paper's figures 8 (speed-ups) and 9 (latency breakdown). Modes are compared with those that were measured
alike: on the same graph, machine and options. Of repeated runs the last one that ended counts.
"""

import argparse
import json
import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from shapes import MODES
from trials import write_png

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.tables import TextTable, print_tables
from cohort_gnn.launch.options.parser import CommandParser
from cohort_gnn.launch.report import charts as report_charts

PANELS_A_ROW = 4
ALIKE = ("scale", "rows", "device", "gpus", "machine", "reuse", "cache_ratio")  # beside the shape
NUMBERS = ("seconds", "wait_seconds", "train_seconds", "fetch_seconds", "host_bytes")


class Panel(NamedTuple):
    """Epochs to be drawn beside others: the times of each, and its name."""

    title: str
    times: list[dict]
    names: list[str]


@dataclass
class Bars:
    """A panel: the lines of one shape, in the order of MODES, that were measured alike."""

    title: str
    lines: dict[str, dict]

    def gain(self, mode: str, number: str) -> float | None:
        """How many times less of it the mode has than "none"; None where one of them was not measured or is 0."""
        first, line = self.lines.get("none"), self.lines.get(mode)
        return first[number] / line[number] if first and line and line[number] and first[number] else None


def read_lines(path: Path) -> list[dict]:
    """The lines of bench/epochs.py in a file that has those of other benchmarks, too.

    Raises:
        CohortError: it cannot be read, or a line is damaged.
    """
    try:
        numbered = [(i, json.loads(text)) for i, text in enumerate(path.read_text().splitlines(), 1) if text.strip()]
    except (OSError, ValueError) as error:
        raise CohortError(str(path), "a file that bench/epochs.py has appended to", str(error)) from error
    found = [(i, line) for i, line in numbered if isinstance(line, dict) and line.get("bench") == "epoch"]
    for i, line in found:
        numbers = () if "failure" in line else NUMBERS
        missing = [name for name in numbers if not isinstance(line.get(name), int | float)]
        missing += [name for name in ("shape", *ALIKE) if name not in line]
        if missing or line.get("mode") not in MODES:
            expected = f"{missing[0]} in it" if missing else f"a mode of {', '.join(MODES)}"
            raise CohortError(f"{path}: line {i}", expected, str(line)[:60], "measure again into another file")
    return [line for _, line in found]


def panels_of(lines: Iterable[dict]) -> list[Bars]:
    """A panel for each shape and way of measuring, as they first come."""
    found: dict[str, dict[str, dict]] = {}
    for line in lines:
        if "failure" not in line:
            found.setdefault(json.dumps([line[name] for name in ("shape", *ALIKE)]), {})[line["mode"]] = line
    keys = [json.loads(key) for key in found]
    modes = [{mode: by_mode[mode] for mode in MODES if mode in by_mode} for by_mode in found.values()]
    return [Bars(_title(key, keys), each) for key, each in zip(keys, modes, strict=True)]


def _title(key: list, keys: list[list]) -> str:
    """The shape, and what tells its panel from others of it."""
    same = [each for each in keys if each[0] == key[0]]
    telling = [i for i in range(1, len(key)) if any(each[i] != key[i] for each in same)]
    return ", ".join([key[0], *(f"{ALIKE[i - 1].replace('_', ' ')} {_as_text(key[i])}" for i in telling)])


def _as_text(value) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def table_of(panels: list[Bars]) -> TextTable:
    """A row a shape and mode; how many times faster than "none", beside how many times fewer bytes it reads."""
    times = ("seconds", "wait_seconds", "train_seconds", "fetch_seconds")
    gains = ("fetch_seconds", "host_bytes", "seconds")
    rows = [
        [bars.title, mode, *(f"{line[name]:.4f}" for name in times), *(_times(bars.gain(mode, name)) for name in gains)]
        for bars in panels
        for mode, line in bars.lines.items()
    ]
    columns = ["shape", "mode", "epoch s", "wait s", "train s", "fetch s", "fetch speed-up", "size ratio"]
    note = "against none; size ratio: host bytes of none by those of the mode, a batch\n" + mean_gain(panels)
    return TextTable("Epochs with raw and encoded rows", [*columns, "epoch speed-up"], rows, note)


def mean_gain(panels: list[Bars]) -> str:
    """What M gains on average over the shapes."""
    gains = [gain for bars in panels if (gain := bars.gain("M", "seconds"))]
    if not gains:
        return "M against none: no shape has both"
    mean = fmean(gains)
    return f"epoch speed-up of M, mean of {len(gains)} shapes: {mean:.2f} ({100 * (mean - 1):+.1f} %)"


def _times(gain: float | None) -> str:
    return "-" if gain is None else f"{gain:.2f}"


def _drawn(bars: Bars) -> Panel:
    told = [f"{name} {_times(gain)}x" for name, gain in _gains_of_m(bars) if gain is not None]
    title = f"{bars.title}\nM: {', '.join(told)}" if told else bars.title
    times = [{"all_reduce_seconds": 0.0} | line for line in bars.lines.values()]
    return Panel(title, times, list(bars.lines))


def _gains_of_m(bars: Bars) -> list[tuple[str, float | None]]:
    return [("epoch", bars.gain("M", "seconds")), ("fetch", bars.gain("M", "fetch_seconds"))]


def draw_panels(panels: list[Panel]) -> bytes:
    """Panels of stacked bars beside each other, in several rows where there are many: wait, train, all-reduce."""
    columns = min(len(panels), PANELS_A_ROW)
    rows = math.ceil(len(panels) / columns)
    figure, _ = report_charts.figure_of(1.5 + 3.2 * columns, columns, height=3.8 * rows, rows=rows)
    for axes, panel in zip(figure.axes, panels, strict=False):
        report_charts.stack_times(axes, panel.times)
        axes.set_xticks(range(len(panel.names)), map(report_charts.plain, panel.names))
        axes.set_xlim(-0.5, max(len(each.names) for each in panels) - 0.5)
        axes.set_title(report_charts.plain(panel.title), fontsize=10)
    for axes in figure.axes[len(panels) :]:
        axes.set_axis_off()
    named = [zip(*axes.get_legend_handles_labels(), strict=True) for axes in figure.axes]
    by_name = {name: handle for each in named for handle, name in each}  # all-reduce is not in every panel
    figure.axes[columns - 1].legend(by_name.values(), by_name.keys(), loc="upper left", bbox_to_anchor=(1, 1))
    return report_charts.png_of(figure)


def main(argv: list[str] | None = None) -> int:
    """Prints the table, then draws the picture."""
    parser = CommandParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE.jsonl", help="what epochs.py has appended to")
    parser.add_argument("--png", type=Path, default=Path("bench.png"), help="the picture (default bench.png)")
    args = parser.parse_args(argv)
    try:
        panels = panels_of(line for path in args.files for line in read_lines(path))
        if not panels:
            hint = "bench/epochs.py --shape SHAPE --out FILE.jsonl appends them"
            raise CohortError(", ".join(map(str, args.files)), "lines of bench/epochs.py", "none that ended", hint)
        print_tables(table_of(panels))
        write_png(args.png, draw_panels([_drawn(bars) for bars in panels]))
    except CohortError as error:
        print(f"figure: {error}", file=sys.stderr)
        return 1
    print(f"chart: {args.png}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
