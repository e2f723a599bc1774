"""Runs of several machines, here all on one."""

import functools
from pathlib import Path

from processes import enter_network, free_port, hear_hangups, processes_of, wait_until
from resumable import OPTIONS, Launch

from cohort_gnn.launch.run.machines import Machine, folder_of_machine

SECONDS_OF_SILENCE = 4
SECONDS_TO_HEAR = 12.0  # what a silent machine, the last words and the end of processes may take together


class Machines:
    """Launchers of several machines; machine k's folder is that of its `Launch`, ranks[k] its --ranks if not None.

    size: how many the run has, if they do not all come.
    """

    def __init__(
        self, monkeypatch, out: Path, graphs: list[Path], *options, ranks=(1, 1), own=None, networks=None, size=None
    ):
        self.out = out
        monkeypatch.setenv("MASTER_ADDR", "10.213.7.1" if networks else "127.0.0.1")
        monkeypatch.setenv("MASTER_PORT", str(free_port()))
        monkeypatch.setenv("WORLD_SIZE", str(size or len(graphs)))
        self.launches = []
        for rank, folder in enumerate(graphs):
            monkeypatch.setenv("RANK", str(rank))
            arguments = [*options, "--machine-seconds", SECONDS_OF_SILENCE]
            arguments += [] if ranks[rank] is None else ["--ranks", ranks[rank]]
            arguments += (own or {}).get(rank, [])
            log = out.with_name(f"{out.name}-{rank}")
            before = functools.partial(enter_network, networks[rank]) if networks else hear_hangups
            launch = Launch(log, folder, *OPTIONS, *arguments, "--out", out, before=before)
            launch.out = folder_of_machine(out, Machine(rank, len(graphs), "", 0, False, ""))
            self.launches.append(launch)

    def wait(self) -> list[int]:
        """The exit codes."""
        return [launch.wait() for launch in self.launches]

    def said(self, rank: int) -> str:
        return self.launches[rank].errors.read_text()

    def await_epochs(self, number: int = 1) -> None:
        lines = self.out / "metrics.jsonl"
        wait_until(lambda: lines.exists() and lines.read_bytes().count(b"\n") >= number, 60, f"{number} epochs")

    def demand_nothing_left(self) -> None:
        assert processes_of(self.out) == {}


def meetings_of(launcher: int) -> list[int]:
    """The process by which a launcher speaks to the others."""
    children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    return [pid for pid in processes_of("cohort_gnn.launch.run.meeting") if str(pid) in children]
