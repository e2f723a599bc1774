"""``cohort inspect``: looks into the live channel of a run."""

import argparse
import json
from pathlib import Path

from rich.console import Console
from rich.table import Table

from cohort.base.errors import CohortError
from cohort.base.units import format_bytes
from cohort.launch.supervise import describe_channel


def register(commands) -> None:
    """Adds the command."""
    parser = commands.add_parser("inspect", help="look into a running channel", description=__doc__)
    parser.add_argument("run", type=Path, metavar="RUN", help="the run's folder (--out), or a channel's folder")
    parser.add_argument("--json", action="store_true", help="print JSON: an object, or a list of one a rank")
    parser.set_defaults(func=inspect)


def inspect(args: argparse.Namespace) -> int:
    """Prints slots, states, ages, owners and stages."""
    folder = _channel_of(args.run)
    if not any((folder / name).exists() for name in ("channel", "channel.tmp")):
        raise CohortError(str(args.run), "a live channel", "none", "the run has ended, or has only just begun")
    others = sorted(folder.glob("rank-*"), key=lambda path: int(path.name.removeprefix("rank-")))
    channels = [describe_channel(each) for each in [folder, *others]]
    if args.json:
        print(json.dumps(channels if others else channels[0], indent=2))
        return 0
    for rank, channel in enumerate(channels):
        _print(channel, f"rank {rank}, " if others else "")
    return 0


def _channel_of(run: Path) -> Path:
    """The channel's folder: the one that run.json names, or the folder itself."""
    if not (run / "run.json").exists():
        return run
    try:
        return Path(json.loads((run / "run.json").read_text())["sampler"]["channel"])
    except (ValueError, KeyError, TypeError) as error:
        raise CohortError(str(run / "run.json"), "what cohort train wrote", repr(error)) from error


def _print(channel: dict, which: str) -> None:
    console = Console()
    for name in ("sampler", "trainer"):
        party = channel[name]
        alive = "alive" if party["alive"] else "not running"
        console.print(
            f"{which}{name}: process {party['pid']}, {alive}, {party['stage']} (batch {party['batch']})"
            f" for {party['stage_seconds']:.1f} s"
        )
        if party.get("error"):
            console.print(f"  it said: {party['error']}")
    table = Table(title=f"{which}slots on {channel['device']}")
    for column in ("slot", "state", "age s", "batch", "step", "nodes", "edges", "memory"):
        table.add_column(column, justify="right")
    for i, slot in enumerate(channel["slots"]):
        numbers = [str(slot.get(key, "-")) for key in ("batch", "step", "num_nodes", "num_edges")]
        table.add_row(
            str(i), slot["state"], f"{slot.get('state_seconds', 0):.1f}", *numbers, format_bytes(slot["bytes"])
        )
    console.print(table)
