"""``cohort report``: shows what a run did and where its time and bytes went, or how runs differ: tables and a page."""

import argparse
from pathlib import Path

from cohort_gnn.base.files import demand_writable, write_whole
from cohort_gnn.base.tables import TextTable, print_tables
from cohort_gnn.launch.report import charts as report_charts
from cohort_gnn.launch.report import tables as report_tables
from cohort_gnn.launch.report.page import Chart, Section, page
from cohort_gnn.launch.report.results import LISTS, ROWS, Run, one_line, read_run


def register(parser) -> None:
    """Adds the arguments of the command."""
    parser.description = __doc__
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
    result = report_tables.result_table(run)
    result.note = ""  # the section shows its warnings above the table
    result_section = Section(
        "Result", tables=[result], score=report_tables.headline(run), warnings=report_tables.cautions(run)
    )
    options = TextTable("Options", ["option", "value"], [[name, one_line(run.options[name])] for name in run.options])
    time = Section("Time", tables=[report_tables.epoch_table(run), report_tables.course_table(run)])
    reads = Section("Bytes", tables=[report_tables.tier_table(run, kind) for kind in (ROWS, LISTS)])
    reads.tables += [report_tables.held_table(run)] if run.held else []
    reads.tables += [report_tables.parts_table(run)] if run.parts else []
    sections = [Section("What ran", tables=[report_tables.about_table(run)]), result_section]
    if report_charts.can_draw():
        sections.append(Section("Learning curves", _curves([run], [""])))
        side_by_side = (
            f"; bars of an epoch, from the left: {', '.join(run.rank_names)}" if len(run.rank_names) > 1 else ""
        )
        caption = f"Seconds of each epoch: waiting for batches, training on them{side_by_side}."
        time.charts.append(Chart("epochs", caption, report_charts.draw_epochs(run)))
        reads.charts = [chart for kind in (ROWS, LISTS) for chart in _reads(run, kind)]
    sections += [time, reads, Section("Options", tables=[options])]
    _write(out, f"Cohort: {one_line(run.folder.resolve().name)}", sections)


def _curves(runs: list[Run], names: list[str]) -> list[Chart]:
    """Loss of training, and the metric by which the epochs of the first run are compared."""
    charts = [Chart("loss", "Mean loss of training in each epoch.", report_charts.draw_loss(runs, names))]
    for metric in list(runs[0].summary["val_metrics"])[:1]:
        png = report_charts.draw_validation(runs, names, metric)
        caption = f"{metric} in validation after each epoch; a ring marks the epoch whose weights are kept."
        charts.append(Chart("validation", caption, png))
    return charts


def _reads(run: Run, kind) -> list[Chart]:
    """What a batch read by tier, where there are several: a chart of a single one says nothing."""
    name, tiers = kind.count, run.used_tiers(kind)
    if len(tiers) < 2:
        return []
    plan = " A black line is what the plan of the cache expected." if run.summary["cache"] else ""
    title = f"{kind.title} of a batch of training, by where they were read"
    return [
        Chart(f"{name}-bytes", f"{title}: bytes.{plan}", report_charts.draw_bytes(run, kind)),
        Chart(f"{name}-hits", f"{title}: share of all reads.{plan}", report_charts.draw_hits(run, kind)),
    ]


def _compare(runs: list[Run], out: Path) -> None:
    names = [one_line(run.folder.resolve().name) for run in runs]
    if len(set(names)) < len(names):
        names = [one_line(str(run.folder)) for run in runs]
    differing, results, times = report_tables.compare_tables(runs, names)
    print_tables(differing, results, times)
    commands = [one_line(run.starts[-1]["command"]) if run.starts else "-" for run in runs]
    about = TextTable("Commands", ["run", "command"], [list(row) for row in zip(names, commands, strict=True)])
    sections = [Section("What ran", tables=[about, differing]), Section("Results", tables=[results])]
    time = Section("Time and bytes", tables=[times])
    if report_charts.can_draw():
        sections.append(Section("Learning curves", _curves(runs, names)))
        png = report_charts.draw_times([report_tables.median_times(run) for run in runs], names)
        time.charts.append(Chart("runs", "Seconds of the median epoch: waiting for batches, training on them.", png))
    _write(out, f"Cohort: {' | '.join(names)}", [*sections, time])


def _write(out: Path, title: str, sections: list[Section]) -> None:
    """Writes report.html and report-NAME.png for each chart, and says where they are."""
    pngs = {out / f"report-{chart.name}.png": chart.png for section in sections for chart in section.charts}
    with demand_writable(out):
        out.mkdir(parents=True, exist_ok=True)
        for path, png in pngs.items():
            write_whole(path, png)
        write_whole(out / "report.html", page(title, sections))
    named = ", ".join(path.name for path in pngs) or "none, as they need matplotlib (pip install matplotlib)"
    print(f"report: {out / 'report.html'}; charts: {named}")
