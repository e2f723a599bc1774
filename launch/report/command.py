"""``cohort report``: shows where a run's time and bytes went, or how runs differ: tables, charts and an HTML page."""

import argparse
from pathlib import Path

from cohort_gnn.base.files import demand_writable, write_whole
from cohort_gnn.base.tables import Table, print_tables
from cohort_gnn.launch.report import page as report_page
from cohort_gnn.launch.report import tables as report_tables
from cohort_gnn.launch.report.results import LISTS, ROWS, Run, one_line, read_run


def register(commands) -> None:
    """Adds the command."""
    parser = commands.add_parser("report", help="report on a run, or compare runs", description=__doc__)
    parser.add_argument(
        "runs", type=Path, nargs="+", metavar="RUN", help="folder of a run (--out); several folders are compared"
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FOLDER",
        help="folder for report.html and report-*.png (default: RUN; for several runs: report)",
    )
    parser.set_defaults(func=report)


def report(args: argparse.Namespace) -> int:
    """Prints tables, then writes the page and, with matplotlib, its charts; nothing is written when a run cannot be
    read."""
    runs = [read_run(folder) for folder in args.runs]
    if len(runs) == 1:
        _report_one(runs[0], args.out or args.runs[0])
    else:
        _compare(runs, args.out or Path("report"))
    return 0


def _report_one(run: Run, out: Path) -> None:
    print_tables(*report_tables.short_tables(run))
    reads = [report_tables.tier_table(run, kind) for kind in (ROWS, LISTS)]
    held = [report_tables.held_table(run)] if run.held else []
    held += [report_tables.parts_table(run)] if run.parts else []
    epochs = report_tables.epoch_table(run)
    options = Table("Options", ["option", "value"], [[name, one_line(run.options[name])] for name in run.options])
    tables = [report_tables.result_table(run), epochs, *reads, *held, options]
    charts = {}
    if report_page.can_draw():
        charts["epochs"] = "wait, train and all-reduce of each epoch and rank", report_page.draw_epochs(run)
        charts["bytes"] = "bytes that a batch read, by tier", report_page.draw_bytes(run)
        charts["hits"] = "hit rates, measured and planned", report_page.draw_hits(run)
    _write(out, f"Cohort: {one_line(run.folder.resolve().name)}", tables, charts)


def _compare(runs: list[Run], out: Path) -> None:
    names = [one_line(run.folder.resolve().name) for run in runs]
    if len(set(names)) < len(names):
        names = [one_line(str(run.folder)) for run in runs]
    table = report_tables.compare_table(runs, names)
    print_tables(table)
    charts = {}
    if report_page.can_draw():
        png = report_page.draw_times([report_tables.median_times(run) for run in runs], names)
        charts["runs"] = "wait, train and all-reduce of the median epoch", png
    _write(out, f"Cohort: {' | '.join(names)}", [table], charts)


def _write(out: Path, title: str, tables: list[Table], charts: dict[str, tuple[str, bytes]]) -> None:
    """Writes report.html and a report-NAME.png for each {name: (what it shows, PNG)}, and says where they are."""
    pngs = {out / f"report-{name}.png": png for name, (_, png) in charts.items()}
    with demand_writable(out):
        out.mkdir(parents=True, exist_ok=True)
        for path, png in pngs.items():
            write_whole(path, png)
        write_whole(out / "report.html", report_page.page(title, tables, dict(charts.values())))
    named = ", ".join(path.name for path in pngs) or "none, as they need matplotlib (pip install matplotlib)"
    print(f"report: {out / 'report.html'}; charts: {named}")
