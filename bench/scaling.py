"""Does an epoch cost in proportion to what it does? Edges sampled, rows fetched, GPUs: three sizes each, and a line.

    python bench/scaling.py DIR|--shape products [--fanout 5,10/10,10/25,10] [--train-shares 0.25,0.5,1] [--ranks 1,2,4]

Short runs of `cohort train`, with its options. Varied are

- edges: the fanout, with all training nodes, on one GPU; rows follow, by less;
- rows: the share of the training nodes that is trained on, with the last fanout, on one GPU: fewer batches of the same
  kind. Rows are those read from GPU, peers and host; what is copied from the batches before is not fetched;
- GPUs (on the CPU: trainers), with the last fanout and all training nodes: seeds a second should grow in proportion.

A straight line is laid through each three by least squares. OUT gets scaling.png, and a line a run in scaling.jsonl.
"""

import argparse
import json
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from trials import Trials, trial_parser, write_png

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.tables import TextTable, print_tables
from cohort_gnn.launch.options.parser import as_text, kind
from cohort_gnn.launch.report import charts as report_charts
from cohort_gnn.spec.types import AboveZero, Fanout, Positive

EPOCHS = 10
RANKS = (1, 2, 4)


@dataclass
class Series:
    """Runs in which one thing varies.

    Attributes:
        size: what they are compared by.
        varied: the option that makes it, a member of lines.
        x: the member of a line that is the size.
        lines: of the runs that ended.
    """

    size: str
    varied: str
    x: str
    lines: list[dict]

    @property
    def is_rate(self) -> bool:
        """Whether seeds a second should grow in proportion, instead of seconds of an epoch."""
        return self.x == "ranks"

    @property
    def y_name(self) -> str:
        return "seeds/s" if self.is_rate else "epoch s"

    @property
    def xs(self) -> list[float]:
        return [line[self.x] for line in self.lines]

    @property
    def ys(self) -> list[float]:
        return [line["seeds"] / line["seconds"] if self.is_rate else line["seconds"] for line in self.lines]


@dataclass
class Line:
    """y = slope x + start, by least squares; deviations: how far each point is above it, as a share of it."""

    slope: float
    start: float
    deviations: list[float]

    @property
    def largest(self) -> float:
        return max(map(abs, self.deviations))


def line_through(xs: list[float], ys: list[float]) -> Line | None:
    """None for less than three sizes: a line goes through any two."""
    if len(set(xs)) < 3:
        return None
    slope, start = map(float, np.polyfit(xs, ys, 1))
    return Line(slope, start, [y / (slope * x + start) - 1 for x, y in zip(xs, ys, strict=True)])


def build_parser() -> argparse.ArgumentParser:
    gpus = "numbers of the GPUs to use (default: all that are visible)"
    parser = trial_parser(__doc__, "scaling", EPOCHS, fanout=None, ranks=None, gpus=gpus)
    parser.add_argument(
        "--fanout",
        dest="fanouts",
        type=_fanouts,
        default=[[5, 10], [10, 10], [25, 10]],
        metavar="F[/F...]",
        help="to try; the last one is that of all other runs (default 5,10/10,10/25,10)",
    )
    parser.add_argument(
        "--ranks",
        dest="tried_ranks",
        type=kind(list[Positive]),
        metavar="A[,B...]",
        help="numbers of GPUs (CPU: of trainers) to try (default: 1,2,4 if there)",
    )
    parser.add_argument(
        "--train-shares",
        type=_shares,
        default=[0.25, 0.5, 1.0],
        metavar="A[,B...]",
        help="of the training nodes, to try (default 0.25,0.5,1)",
    )
    return parser


def _fanouts(text: str) -> list[list[int]]:
    return [kind(Fanout)(part) for part in text.split("/")]


def _shares(text: str) -> list[float]:
    shares = kind(list[AboveZero])(text)
    if max(shares) > 1:
        raise argparse.ArgumentTypeError(f"expected numbers of at most 1, found {text}")
    return shares


class Runs:
    """The runs of all series: each is made once.

    Args:
        args: of the command.
    """

    def __init__(self, args: argparse.Namespace, trials: Trials):
        self._fanout, self._trials = args.fanouts[-1], trials
        self._base = {name: value for name, value in trials.base.items() if name not in ("fanout", "ranks", "gpus")}
        self._gpus = trials.spec.gpus or list(trials.gpus)
        self._known: dict[str, dict] = {}

    @property
    def most_ranks(self) -> int:
        """How many GPUs there are, or cores."""
        return len(self._gpus) if self._trials.device == "cuda" else os.cpu_count() or 1

    def line(self, **changed) -> dict:
        """The line of the run that differs in that from all training nodes, the last fanout and one GPU."""
        told = {"fanout": self._fanout, "train_share": 1.0, "ranks": 1} | changed
        key = json.dumps(told)
        if key not in self._known:
            self._known[key] = self._run(told)
        return self._known[key]

    def _run(self, told: dict) -> dict:
        trials, share, ranks = self._trials, told["train_share"], told["ranks"]
        where = {"gpus": self._gpus[:ranks]} if trials.device == "cuda" else {"ranks": ranks}
        dataset = trials.dataset
        if share < 1:
            dataset = with_train_share(dataset, share, trials.out / f"data-{share:g}")
        return trials.run(told, self._base | {"fanout": told["fanout"]} | where, dataset)


def with_train_share(dataset: Path, share: float, folder: Path) -> Path:
    """Makes a data set that has that share of another's training nodes, evenly taken, and links to the rest of it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    train_file = json.loads((dataset / "meta.json").read_text())["files"]["train_ids"]
    for path in dataset.iterdir():
        if path.name != train_file:
            (folder / path.name).symlink_to(path)
    ids = np.load(dataset / train_file)
    count = max(1, round(share * len(ids)))
    np.save(folder / train_file, ids[np.arange(count) * len(ids) // count])
    return folder


def measure(args: argparse.Namespace, trials: Trials) -> list[Series]:
    """The three series.

    Raises:
        CohortError: there are fewer GPUs than --ranks asks for.
    """
    runs = Runs(args, trials)
    ranks = args.tried_ranks or [each for each in RANKS if each <= runs.most_ranks]
    if trials.device == "cuda" and max(ranks) > runs.most_ranks:
        raise CohortError("--ranks", f"at most {runs.most_ranks}, the GPUs to use", str(max(ranks)))
    found = [
        Series("edges sampled", "fanout", "edges", [runs.line(fanout=each) for each in args.fanouts]),
        Series("rows fetched", "train_share", "rows", [runs.line(train_share=each) for each in args.train_shares]),
        Series(
            "GPUs" if trials.device == "cuda" else "trainers",
            "ranks",
            "ranks",
            [runs.line(ranks=each) for each in ranks],
        ),
    ]
    for series in found:
        series.lines = [line for line in series.lines if "failure" not in line]
    return found


def table_of(series: Series) -> TextTable:
    """A row a size, with what the line says of it."""
    line = line_through(series.xs, series.ys)
    columns = [series.varied.replace("_", " "), "edges", "rows", "batches", "epoch s"]
    columns += ["seeds/s", "efficiency %"] * series.is_rate + [f"line, {series.y_name}", "off it %"]
    rows = []
    for i, (found, y) in enumerate(zip(series.lines, series.ys, strict=True)):
        row = [as_text(found[series.varied]), *(f"{found[name]:,.0f}" for name in ("edges", "rows", "batches"))]
        row.append(f"{found['seconds']:.4f}")
        row += [f"{y:,.0f}", _efficiency(series, i)] * series.is_rate
        told = [f"{line.slope * found[series.x] + line.start:{',.0f' if series.is_rate else '.4f'}}"] if line else ["-"]
        rows.append([*row, *told, f"{100 * line.deviations[i]:+.2f}" if line else "-"])
    return TextTable(f"{series.size}", columns, rows, _note(series, line))


def _efficiency(series: Series, i: int) -> str:
    """Seeds a second by those of one GPU, for each GPU."""
    one = next((y for x, y in zip(series.xs, series.ys, strict=True) if x == 1), None)
    return f"{100 * series.ys[i] / (series.xs[i] * one):.1f}" if one else "-"


def _note(series: Series, line: Line | None) -> str:
    if line is None:
        return "no line: less than three sizes"
    equation = f"{series.y_name} = {line.slope:.4g} x {series.size} {line.start:+.4g}"
    return f"{equation}; largest deviation {100 * line.largest:.2f} %"


def draw(found: list[Series]) -> bytes:
    """A panel a series: what was measured, and the line through it."""
    figure, panels = report_charts.figure_of(4.2 * len(found), columns=len(found))
    for axes, series in zip(panels, found, strict=True):
        if series.lines:
            _draw_panel(axes, series)
        axes.set_xlabel(series.size if series.is_rate else f"{series.size}, an epoch")
        axes.set_ylabel("seeds a second" if series.is_rate else "seconds an epoch")
    return report_charts.png_of(figure)


def _draw_panel(axes, series: Series) -> None:
    ends = [0, 1.05 * max(series.xs)]
    axes.plot(series.xs, series.ys, "o", color="#d1495b", label="measured")
    if line := line_through(series.xs, series.ys):
        told = f"line, at most {100 * line.largest:.1f} % off"
        axes.plot(ends, [line.slope * x + line.start for x in ends], color="#30638e", label=told)
    if series.is_rate:
        one = series.ys[0] / series.xs[0]
        axes.plot(ends, [one * x for x in ends], ":", color="gray", label="in proportion to the first")
        axes.set_xticks(series.xs)
    axes.set_xlim(*ends)
    axes.set_ylim(0, 1.1 * max(series.ys))
    axes.legend(loc="lower right")


def main(argv: list[str] | None = None) -> int:
    """0 when every run ended."""
    try:
        args = build_parser().parse_args(argv)
        trials = Trials(args)
        found = measure(args, trials)
        print_tables(*(table_of(series) for series in found if series.lines))
        write_png(trials.out / "scaling.png", draw(found))
    except CohortError as error:
        print(f"scaling: {error}", file=sys.stderr)
        return 1
    print(f"chart: {trials.out / 'scaling.png'}; lines: {trials.out / 'scaling.jsonl'}")
    return int(any("failure" in line for line in trials.lines))


if __name__ == "__main__":
    sys.exit(main())
