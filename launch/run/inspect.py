"""``cohort inspect``: shows the slots of a run in progress, with their states, ages and last stages."""

import argparse
import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live

from cohort.base.errors import CohortError, not_a_run
from cohort.base.tables import Table
from cohort.base.units import format_bytes
from cohort.launch.options.arguments import kind
from cohort.launch.run.supervise import describe_channel
from cohort.spec.types import AboveZero


def register(commands) -> None:
    """Adds the command."""
    parser = commands.add_parser("inspect", help="show the slots of a run in progress", description=__doc__)
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
    folder = _channel_of(args.run)
    if not _is_live(folder):
        raise CohortError(str(args.run), "a live channel", "none", "the run has ended, or has only just begun")
    console = Console()
    on_screen = args.watch and console.is_terminal and not args.json
    screen = Live(console=console, auto_refresh=False) if on_screen else contextlib.nullcontext()
    with contextlib.suppress(KeyboardInterrupt), screen as live:
        for channels in _looks(folder, args.watch):
            if args.json:
                found = channels if len(channels) > 1 else channels[0]
                print(json.dumps(found, indent=None if args.watch else 2), flush=True)
            elif live:
                live.update(_view(channels), refresh=True)
            else:
                console.print(_view(channels))
    return 0


def _is_live(folder: Path) -> bool:
    return any((folder / name).exists() for name in ("channel", "channel.tmp"))


def _channels(folder: Path) -> list[dict]:
    """What each rank's channel says, rank 0's first."""
    others = sorted(folder.glob("rank-*"), key=lambda path: int(path.name.removeprefix("rank-")))
    return [describe_channel(each) for each in [folder, *others]]


def _channel_of(run: Path) -> Path:
    """The channel's folder: the one that run.json names, or the folder itself."""
    if not run.is_dir():
        raise not_a_run(run)
    if not (run / "run.json").exists():
        return run
    try:
        return Path(json.loads((run / "run.json").read_text())["sampler"]["channel"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise CohortError(str(run / "run.json"), "the run.json of cohort train", repr(error)) from error


def _looks(folder: Path, seconds: float | None) -> Iterator[list[dict]]:
    """What the channels say: once, or every so many seconds until they are gone."""
    while _is_live(folder):
        try:
            yield _channels(folder)
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
    table = Table(f"{which}slots on {channel['device']}", columns)
    for i, slot in enumerate(channel["slots"]):
        numbers = [str(slot.get(key, "-")) for key in ("batch", "step", "num_nodes", "num_edges")]
        age, size = f"{slot.get('state_seconds', 0):.1f}", format_bytes(slot["bytes"])
        table.rows.append([str(i), slot["state"], age, *numbers, size])
    return table.as_rich()
