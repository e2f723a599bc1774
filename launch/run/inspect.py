"""``cohort inspect``: shows the slots of a run in progress, with their states, ages and last stages."""

import argparse
import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live

from cohort_gnn.base.errors import CohortError, why
from cohort_gnn.base.programs import describe_channel
from cohort_gnn.base.tables import TextTable
from cohort_gnn.base.units import format_bytes
from cohort_gnn.launch.options.parser import kind
from cohort_gnn.spec import files
from cohort_gnn.spec.run_file import read_run_json
from cohort_gnn.spec.types import AboveZero


def register(parser) -> None:
    """Adds the arguments of the command."""
    parser.description = __doc__
    parser.add_argument("run", type=Path, metavar="RUN", help="the run's folder (--out), or a channel's folder")
    parser.add_argument("--json", action="store_true", help="print JSON: an object, or with several ranks a list")
    parser.add_argument(
        "--watch",
        type=kind(AboveZero),
        nargs="?",
        const=1.0,
        metavar="SECONDS",
        help="repeat at this interval (default 1) until the run ends or Ctrl-C; with --json one line each time",
    )
    parser.set_defaults(func=inspect)


def inspect(args: argparse.Namespace) -> int:
    """Prints slots, states, ages, owners and stages."""
    folder = args.run  # a channel's, or a run's, whose run.json names that of its channel
    if not folder.is_dir() or (folder / files.RUN).exists():
        channel = read_run_json(args.run, "sampler")["sampler"].get("channel")
        if not isinstance(channel, str):
            raise CohortError(str(args.run / files.RUN), "the run.json of cohort train", f"the channel {channel!r}")
        folder = Path(channel)
    try:
        is_live = _is_live(folder)
    except PermissionError as error:
        hint = "the user that started the run can inspect it"
        raise CohortError(str(folder), "a channel of your own", why(error), hint) from error
    if not is_live:
        raise CohortError(str(args.run), "a live channel", "none", "the run has ended, or has only just begun")
    console = Console()
    on_screen = args.watch and console.is_terminal and not args.json
    screen = Live(console=console, auto_refresh=False) if on_screen else contextlib.nullcontext()
    with contextlib.suppress(KeyboardInterrupt), screen as live:
        for channels in _looks(folder, args.watch):
            if args.json:
                content = channels if len(channels) > 1 else channels[0]
                print(json.dumps(content, indent=None if args.watch else 2), flush=True)
            elif live:
                live.update(_view(channels), refresh=True)
            else:
                console.print(_view(channels))
    return 0


def _is_live(folder: Path) -> bool:
    return any((folder / name).exists() for name in ("channel", "channel.tmp"))


def _looks(folder: Path, seconds: float | None) -> Iterator[list[dict]]:
    """The state of each rank's channel, rank 0's first: once, or every so many seconds until they are gone."""
    while _is_live(folder):
        try:
            others = sorted(folder.glob("rank-*"), key=lambda path: int(path.name.removeprefix("rank-")))
            yield [describe_channel(channel) for channel in [folder, *others]]
        except CohortError:
            if seconds is None or _is_live(folder):
                raise
        if seconds is None:
            return
        time.sleep(seconds)


def _view(channels: list[dict]) -> Group:
    parts = []
    for rank, channel in enumerate(channels):
        which = f"rank {rank}, " if len(channels) > 1 else ""
        parts += [*_parties(channel, which), _slots(channel, which)]
    return Group(*parts)


def _parties(channel: dict, which: str) -> Iterator[str]:
    for name in ("sampler", "trainer"):
        party = channel[name]
        if not party["pid"]:
            yield f"{which}{name}: not started yet"
            continue
        alive = "alive" if party["alive"] else "not running"
        yield (
            f"{which}{name}: process {party['pid']}, {alive}, {party['stage']} (batch {party['batch']})"
            f" for {party['stage_seconds']:.1f} s"
        )
        if party.get("error"):
            yield f"  it said: {party['error']}"


def _slots(channel: dict, which: str):
    columns = ["slot", "state", "age s", "batch", "step", "nodes", "edges", "memory"]
    table = TextTable(f"{which}slots on {channel['device']}", columns)
    for i, slot in enumerate(channel["slots"]):
        numbers = [str(slot.get(key, "-")) for key in ("batch", "step", "num_nodes", "num_edges")]
        age, size = f"{slot.get('state_seconds', 0):.1f}", format_bytes(slot["bytes"])
        table.rows.append([str(i), slot["state"], age, *numbers, size])
    return table.as_rich()
