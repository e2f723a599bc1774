"""How far from the best of a grid does `cohort tune` end? Cache ratio x SMs of the sampler, all measured, then tuned.

    python bench/tune_grid.py DIR|--shape products [--cache-ratio 0,0.05,0.2,1.1] [--sampler-sms 0,16,32,48]

With options of `cohort train`, which hold for the grid and for tuning alike: `--slots 4 --reuse --compress auto`
leaves tuning nothing else to vary than the grid does. Every point of the grid is a run of as many epochs as a trial of
`cohort tune --cache-ratios R,...`, which comes next. The best point and the options that tuning has chosen then run
in turn, --finals times each, since the least of many single runs flatters; the medians of these are compared. On the
CPU no SMs are shared out, and the grid has one column.

OUT gets tune-grid.png, a line a run in tune-grid.jsonl, and tuning's results in tune/. Exit status 1 when tuning ended
more than 5 % above the best point, or a run that this needs failed.
"""

import argparse
import json
import math
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass
from statistics import median

from trials import Trials, as_words, trial_parser, write_png

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.programs import end_with_parent
from cohort_gnn.base.tables import TextTable, print_tables
from cohort_gnn.launch.options.parser import as_text, kind
from cohort_gnn.launch.report import charts as report_charts
from cohort_gnn.launch.tune.command import TRIAL_EPOCHS
from cohort_gnn.launch.tune.space import RUNS_OWN
from cohort_gnn.spec.options import options_of
from cohort_gnn.spec.run import RunSpec
from cohort_gnn.spec.types import NotNegative, Positive, Ratios

ALLOWED_DISTANCE = 0.05
AXES = ("cache_ratio", "sampler_sms")
VARIED = (*AXES, "slots", "reuse", "compress")  # by tuning, unless they are given

Cell = tuple[float, int]  # cache ratio, SMs of the sampler


@dataclass
class Found:
    """What was measured.

    Attributes:
        grid: {cell: median seconds of an epoch}, math.inf where no run ended.
        chosen: the options of ``cohort train`` that tuning has written.
        best_seconds, chosen_seconds: of the best cell and of these, both from the last runs.
        is_same: tuning has chosen the best cell; then there are no last runs.
    """

    grid: dict[Cell, float]
    chosen: dict
    best_seconds: float
    chosen_seconds: float
    is_same: bool

    @property
    def best(self) -> Cell:
        return min(self.grid, key=self.grid.__getitem__)

    @property
    def distance(self) -> float:
        """How much longer an epoch takes with the options of tuning than at the best cell, as a share."""
        return self.chosen_seconds / self.best_seconds - 1


def build_parser() -> argparse.ArgumentParser:
    parser = trial_parser(__doc__, "tune-grid", TRIAL_EPOCHS, minutes=20.0, cache_ratio=None, sampler_sms=None)
    several = {"metavar": "A[,B...]"}
    text = "of the grid (default 0,0.05,0.2,1.1)"
    ratios = {"type": kind(Ratios), "default": [0.0, 0.05, 0.2, 1.1]}
    parser.add_argument("--cache-ratio", dest="tried_cache_ratio", help=text, **ratios, **several)
    text = "of the grid (default 0,16,32,48; 0: shared with the trainer)"
    sms = {"type": kind(list[NotNegative])}
    parser.add_argument("--sampler-sms", dest="tried_sampler_sms", help=text, **sms, **several)
    parser.add_argument("--repeats", type=kind(Positive), default=1, help="runs of a point of the grid (default 1)")
    parser.add_argument("--finals", type=kind(Positive), default=3, help="last runs of each of the two (default 3)")
    return parser


def columns_of(args: argparse.Namespace, device: str, has_mps: bool) -> list[int]:
    """The grid's numbers of SMs: 0 alone where none are shared out."""
    why = "the CPU" if device == "cpu" else "" if has_mps else "--no-mps"
    if why and any(args.tried_sampler_sms or []):
        raise CohortError("--sampler-sms", "a GPU that is shared through MPS", why, "leave the option out")
    return [0] if why else args.tried_sampler_sms or [0, 16, 32, 48]


def compare(args: argparse.Namespace, trials: Trials) -> Found:
    """Measures the grid, tunes, and measures both results again.

    Raises:
        CohortError: the time was over, or no point of the grid ran, or tuning failed.
    """
    base = {name: value for name, value in trials.base.items() if name not in AXES}
    cells = [
        (ratio, sms) for ratio in args.tried_cache_ratio for sms in columns_of(args, trials.device, trials.spec.mps)
    ]
    grid = measure_grid(trials, base, cells, args.repeats)
    best = options_at(base, min(grid, key=grid.__getitem__))
    chosen = tune(args, trials)
    if chosen == best:
        seconds = min(grid.values())
        return Found(grid, chosen, seconds, seconds, is_same=True)
    times: dict[str, list[float]] = {"best of the grid": [], "chosen by tuning": []}
    for _ in range(args.finals):
        for step, options in zip(times, (best, chosen), strict=True):
            times[step].append(_seconds(trials, {"step": step}, options))
    if math.inf in sum(times.values(), []):
        raise CohortError(
            "the last runs", "runs that end, as the ones before", trials.lines[-1].get("failure", "a failure")
        )
    return Found(grid, chosen, *map(median, times.values()), is_same=False)


def measure_grid(trials: Trials, base: dict, cells: list[Cell], repeats: int) -> dict[Cell, float]:
    """Median seconds of an epoch; all points run once before any runs again."""
    times: dict[Cell, list[float]] = {cell: [] for cell in cells}
    for _ in range(repeats):
        for cell in cells:
            told = {"step": "grid"} | dict(zip(AXES, cell, strict=True))
            times[cell].append(_seconds(trials, told, options_at(base, cell)))
    grid = {cell: median(each) for cell, each in times.items()}
    if min(grid.values()) == math.inf:
        raise CohortError("the grid", "a point that runs", trials.lines[-1]["failure"])
    return grid


def _seconds(trials: Trials, told: dict, options: dict) -> float:
    line = trials.run(told, options)
    if trials.is_over_time:
        raise CohortError("--minutes", "time for the grid, for tuning and for the last runs", line["failure"])
    return line.get("seconds", math.inf)


def options_at(base: dict, cell: Cell) -> dict:
    """The options of ``cohort train`` at a point, without its defaults."""
    return base | {name: value for name, value in zip(AXES, cell, strict=True) if value}


def tune(args: argparse.Namespace, trials: Trials) -> dict:
    """Runs ``cohort tune``, for as long as leaves time for the last runs; the options that it has written."""
    out = trials.out / "tune"
    minutes = (trials.bound.left - (2 * args.finals + 1) * trials.bound.slowest) / 60
    if minutes <= 0:
        raise CohortError("--minutes", "time for tuning and the last runs", "none left after the grid", "give more")
    names = {each.name for each in options_of(RunSpec)} - set(RUNS_OWN)
    given = {name: value for name, value in vars(args).items() if name in names}
    words = as_words(given | {"batch_size": trials.spec.batch_size, "cache_ratios": args.tried_cache_ratio})
    words += as_words({"epochs": trials.epochs, "minutes": minutes, "out": out})
    words += as_words({"config": args.config} if args.config else {})
    begin = time.monotonic()
    command = [sys.executable, "-m", "cohort_gnn", "tune", str(trials.dataset), *words]
    code = subprocess.run(command, stdin=subprocess.DEVNULL, preexec_fn=end_with_parent).returncode
    if code != 0:
        raise CohortError("cohort tune", "exit code 0", str(code), "what it said stands above")
    chosen = {name.replace("-", "_"): value for name, value in tomllib.loads((out / "run.toml").read_text()).items()}
    chosen = {name: value for name, value in chosen.items() if name not in RUNS_OWN}
    num_trials = len(json.loads((out / "tune.json").read_text())["trials"])
    trials.add({"step": "tuning", "seconds": time.monotonic() - begin, "trials": num_trials, "options": chosen})
    return chosen


def tables_of(found: Found, device: str) -> list[TextTable]:
    """The grid, then its best point beside what tuning has chosen."""
    columns = sorted({sms for _, sms in found.grid})
    rows = [
        [f"{ratio:g}", *(_text(found.grid[ratio, sms]) for sms in columns)]
        for ratio in sorted({ratio for ratio, _ in found.grid})
    ]
    note = "median epoch s; columns: SMs of the sampler, 0: shared with the trainer"
    note += "; the CPU has none, and a cache has no effect there" if device == "cpu" else ""
    grid = TextTable("Grid", ["cache ratio", *map(str, columns)], rows, note)
    ratio, sms = found.best
    both = [["best of the grid", f"cache-ratio {ratio:g}, sampler-sms {sms}", _text(found.best_seconds)]]
    both.append(["chosen by tuning", told_of(found.chosen), _text(found.chosen_seconds)])
    how = "the same options" if found.is_same else "medians of runs in turn, after the grid"
    note = f"tuning ended {100 * found.distance:+.2f} % from the best of the grid ({how})"
    return [grid, TextTable("Tuning", ["", "options", "epoch s"], both, note)]


def told_of(options: dict) -> str:
    """What tuning varies, as it was chosen: with what is not said at its default."""
    point = {"cache_ratio": 0.0, "sampler_sms": 0} | {name: options[name] for name in VARIED if name in options}
    return ", ".join(f"{name.replace('_', '-')} {as_text(value)}" for name, value in point.items())


def _text(seconds: float) -> str:
    return "failed" if seconds == math.inf else f"{seconds:.4f}"


def draw(found: Found) -> bytes:
    """The grid as coloured cells; frames: its best point, and that of tuning where it is one of the grid."""
    ratios, columns = (sorted({cell[i] for cell in found.grid}) for i in (0, 1))
    figure, axes = report_charts.figure_of(max(6, 2 + 1.3 * len(columns)), height=2 + 0.8 * len(ratios))
    seconds = [[found.grid[ratio, sms] for sms in columns] for ratio in ratios]
    from matplotlib.patches import Rectangle

    image = axes.imshow(
        [[math.nan if each == math.inf else each for each in row] for row in seconds], "Blues", aspect="auto"
    )
    for y, row in enumerate(seconds):
        for x, each in enumerate(row):
            axes.text(x, y, _text(each), ha="center", va="center", bbox={"facecolor": "white", "linewidth": 0})
    chosen = (found.chosen.get("cache_ratio", 0.0), found.chosen.get("sampler_sms", 0))
    for name, cell, color, size in (
        ("best", found.best, "#d1495b", 0.94),
        ("chosen by tuning", chosen, "#edae49", 0.84),
    ):
        if cell in found.grid:
            corner = (columns.index(cell[1]) - size / 2, ratios.index(cell[0]) - size / 2)
            axes.add_patch(Rectangle(corner, size, size, fill=False, edgecolor=color, linewidth=3, label=name))
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(ratios)), [f"{each:g}" for each in ratios])
    axes.set_xlabel("SMs of the sampler (0: shared)")
    axes.set_ylabel("cache ratio")
    axes.set_title(f"tuning: {told_of(found.chosen)}\n{100 * found.distance:+.1f} % from the best", fontsize=10)
    figure.colorbar(image, label="seconds an epoch")
    figure.legend(loc="outside lower center", ncols=2)
    return report_charts.png_of(figure)


def main(argv: list[str] | None = None) -> int:
    """0 when tuning ended within ALLOWED_DISTANCE of the best."""
    try:
        args = build_parser().parse_args(argv)
        trials = Trials(args)
        found = compare(args, trials)
        trials.add(
            {"step": "result", "best": dict(zip(AXES, found.best, strict=True)), "chosen": found.chosen}
            | {"best_seconds": found.best_seconds, "chosen_seconds": found.chosen_seconds, "distance": found.distance}
        )
        print_tables(*tables_of(found, trials.device))
        write_png(trials.out / "tune-grid.png", draw(found))
    except CohortError as error:
        print(f"tune_grid: {error}", file=sys.stderr)
        return 1
    print(f"chart: {trials.out / 'tune-grid.png'}; lines: {trials.out / 'tune-grid.jsonl'}")
    return int(found.distance > ALLOWED_DISTANCE)


if __name__ == "__main__":
    sys.exit(main())
