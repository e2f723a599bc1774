"""Runs of several machines that torchrun starts: two of its agents, here both on one."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from processes import ALL_TESTS, free_port, processes_of, wait_until
from resumable import OPTIONS, Launch, learned, record_batches, recorded, small_graph

SECONDS_OF_SILENCE = 4
RUN_SECONDS = 120


@pytest.fixture(scope="module")
def graph(tmp_path_factory) -> Path:
    return small_graph(tmp_path_factory.mktemp("torchrun") / "graph")


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """The last bits of a product depend on how many threads share it, and one machine divides its cores."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")


class Agents:
    """torchrun on each machine, with the folders `outs`; programs run in `folder`.

    Args:
        own: variables of each machine's environment.
    """

    def __init__(self, folder: Path, graph: Path, outs: list[Path], *options, own: Sequence[dict[str, str]] = ({}, {})):
        self.outs, self.logs = outs, [folder / f"agent-{rank}.log" for rank in range(len(outs))]
        self.agents: list[subprocess.Popen] = []
        endpoint = f"127.0.0.1:{free_port()}"
        for rank, out in enumerate(outs):
            command = [sys.executable, "-m", "torch.distributed.run", "--nnodes", len(outs), "--nproc-per-node", 1]
            command += ["--max-restarts", 2, "--rdzv-id", "job", "--rdzv-backend", "c10d", "--rdzv-endpoint", endpoint]
            command += ["--local-addr", f"127.0.0.{1 + rank}", "--no-python"]  # torchrun numbers agents by address
            command += [sys.executable, "-m", "cohort_gnn", "train", graph, *OPTIONS, *options, "--out", out, "--quiet"]
            command += ["--machine-seconds", SECONDS_OF_SILENCE]
            with open(self.logs[rank], "w") as log:
                argv = [str(word) for word in command]
                places = {"stdout": log, "stderr": log, "stdin": subprocess.DEVNULL, "cwd": folder}
                self.agents.append(subprocess.Popen(argv, env=os.environ | own[rank], **places))

    def __enter__(self) -> "Agents":
        return self

    def __exit__(self, *_) -> None:
        for agent in self.agents:
            agent.kill()
            agent.wait()

    def demand_success(self) -> None:
        """Waits for the end of all; no process of their runs is left."""
        codes = [agent.wait(timeout=RUN_SECONDS) for agent in self.agents]
        assert codes == [0] * len(codes), "\n".join(log.read_text() for log in self.logs)
        assert [processes_of(out) for out in self.outs] == [{}] * len(codes)


def alone(graph: Path, folder: Path, *options) -> Path:
    """The folder of an undisturbed run of two ranks on one machine; its processes run in the one above."""
    folder.mkdir(exist_ok=True)
    out = folder / "run"
    launch = Launch(out, graph, *OPTIONS, *options, "--out", out, folder=folder)
    assert launch.wait() == 0, launch.errors.read_text()
    return out


def kill_in_an_epoch(graph: Path, folder: Path, of_one: list, options: list, own: Sequence[dict[str, str]]):
    """Two machines, of which the second has its trainer killed in the second of four epochs of 16 steps.

    Args:
        of_one: options of the run without a kill, on one machine.
        options: of both.
        own: variables of each machine's environment.

    Returns:
        What the two runs learned.
    """
    outs, undisturbed = [folder / "first", folder / "second"], folder / "undisturbed"
    options = [*options, "--epochs", 4, "--checkpoint-every", 5, *record_batches(folder)]
    record_batches(undisturbed)
    (folder / "kill").write_text("1 1 11")  # the last checkpoint is of step 9
    with Agents(folder, graph, outs, *options, own=own) as agents:
        agents.demand_success()
    assert not (folder / "kill").exists(), "nobody was killed"
    one = alone(graph, undisturbed, *options, *of_one)
    for rank in range(2):
        expected, found = recorded(undisturbed, rank), recorded(folder, rank)
        assert len(expected) == 4 * 16
        again = found.index(expected[25], 26)  # where the run went on: with step 10 of the second epoch
        assert again == 27 or (rank == 0 and again in (26, 28)), "rank 0 may not have seen the end of step 11, or of 12"
        assert found[:again] == expected[:again] and found[again:] == expected[25:]
    assert json.loads((outs[0] / "run.json").read_text())["resume"]
    assert (outs[1] / "machine-1" / "sampler.log").exists() and not (outs[0] / "machine-1").exists()
    assert not (outs[1] / "summary.json").exists()
    return learned(outs[0]), learned(one)


def test_a_kill_in_the_middle_of_an_epoch_changes_no_batch_and_no_loss(graph, tmp_path):
    found, expected = kill_in_an_epoch(graph, tmp_path, ["--ranks", 2], [], ({}, {}))
    assert found == expected


@pytest.mark.gpu
def test_a_kill_in_the_middle_of_an_epoch_changes_no_batch_on_gpus(graph, tmp_path):
    import torch

    if torch.cuda.device_count() < 2:
        pytest.skip(f"needs 2 GPUs; {torch.cuda.device_count()} here")
    own = [{"CUDA_VISIBLE_DEVICES": str(gpu)} for gpu in range(2)]
    found, expected = kill_in_an_epoch(graph, tmp_path, ["--gpus", "0,1"], ["--device", "cuda"], own)
    losses, expected_losses = ([epoch[0] for epoch in epochs] for _, epochs in (found, expected))
    assert losses == pytest.approx(expected_losses, rel=1e-4)


@pytest.mark.skipif(not ALL_TESTS, reason="takes 20 s: tests/run.sh --all runs it")
def test_a_restart_goes_on_by_itself_after_a_kill_at_any_time(graph, tmp_path):
    out = tmp_path / "run"
    with Agents(tmp_path, graph, [out, out], "--epochs", 12, "--checkpoint-every", 1) as agents:
        lines = out / "metrics.jsonl"
        wait_until(lambda: lines.exists() and lines.read_bytes().count(b"\n") >= 2, 90, "two epochs")
        pids = [pid for pid, argv in processes_of(out / "machine-1").items() if argv[0].endswith("/cohort-sampler")]
        os.kill(pids[0], signal.SIGKILL)
        agents.demand_success()
    assert json.loads((out / "run.json").read_text())["resume"]
    assert learned(out) == learned(alone(graph, tmp_path / "undisturbed", "--epochs", 12, "--ranks", 2))
