"""What the design promises when a process dies: who reports it, with which exit code, and that nothing stays.

COHORT_FAULT_REPEATS=20 python -m pytest tests/launch/run/fault_test.py runs every test 20 times.
"""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import (
    ALL_TESTS,
    SECONDS_TO_END,
    SECONDS_TO_START,
    cohort,
    environment_of,
    processes_of,
    ran,
    two_ranks,
    wait_until,
)

REPEATS = int(os.environ.get("COHORT_FAULT_REPEATS", 20 if ALL_TESTS else 1))
MOMENTS = ["loading", "training"]
# As sitecustomize: where interpreters are forked, nothing else makes a trainer's start last until a process is killed.
SLOW_TRAINER = """
import sys, time
if 'cohort_gnn.trainer' in sys.orig_argv:
    from cohort_gnn.base.early import Argument
    get = Argument.get
    Argument.get = lambda self: (get(self), time.sleep(60))[0]
"""
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
TRAIN = ["--fanout", "5,5", "--batch-size", "64", "--hidden", "16", "--slots", "3"]

pytestmark = [pytest.mark.usefixtures("shm"), pytest.mark.parametrize("repeat", range(REPEATS))]


def at_moments(values: list, first: int = 0) -> list[tuple]:
    """(value, moment): each value at both moments by night, at one by day, in turn."""
    return [
        (value, moment)
        for a, value in enumerate(values)
        for b, moment in enumerate(MOMENTS)
        if ALL_TESTS or b == (a + first) % 2
    ]


class Run:
    """`cohort train` for longer than any test takes, and its processes."""

    def __init__(self, data: Path, out: Path, shm, device: str, *more: str, env: dict[str, str] | None = None):
        self.out, self.shm = out, shm
        self.num_ranks = 2 if "--ranks" in more or "--gpus" in more else 1
        self.data = data
        self.errors = out.with_suffix(".err")
        command = [sys.executable, "-m", "cohort_gnn", "train", str(data), "--device", device, "--epochs", "1000000"]
        with open(self.errors, "w") as errors:
            self.launcher = subprocess.Popen(
                [*command, *TRAIN, "--out", str(out), *more],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env=env,
            )

    def find(self, name: str) -> int | None:
        """pid of the sampler or the trainer, or of the "trainer of rank 1"."""
        wanted = {
            "sampler": lambda argv: argv[0].endswith("/cohort-sampler"),
            "trainer": lambda argv: "cohort_gnn.trainer" in argv,
        }
        role, _, rank = name.partition(" of rank ")
        for pid, argv in processes_of(self.out / "run.json").items():
            if wanted[role](argv) and (not rank or environment_of(pid).get("RANK") == rank):
                return pid
        return None

    def all_found(self) -> bool:
        """True when the sampler and every trainer run."""
        return self.find("sampler") is not None and len(processes_of(self.out / "run.json")) == 1 + self.num_ranks

    def reach(self, moment: str) -> None:
        """Waits for the first moment of loading (all processes have begun), or for training to be under way."""
        if moment == "loading":
            wait_until(self.all_found, SECONDS_TO_START, "starting")
        elif moment == "training":
            metrics = self.out / "metrics.jsonl"
            wait_until(lambda: metrics.exists() and metrics.stat().st_size, SECONDS_TO_START, "the first epoch")

    def end(self, exit_code: int) -> str:
        """Waits for the launcher, within 5 s, with this exit code, and for nothing to stay; what it has printed."""
        begin = time.monotonic()
        assert self.launcher.wait(timeout=SECONDS_TO_END) == exit_code, self.errors.read_text()
        assert_nothing_stays(self, SECONDS_TO_END - (time.monotonic() - begin))
        return self.errors.read_text()


def assert_nothing_stays(run: Run, seconds: float) -> None:
    wait_until(lambda: not processes_of(run.out), seconds, "ending every process")
    wait_until(lambda: not run.shm.runs(), seconds, "removing the folder in shared memory")
    wait_until(lambda: not mps_folders(run), seconds, "removing the MPS folder")


def mps_folders(run: Run) -> list[Path]:
    return list(Path("/tmp").glob(f"cohort-mps-{run.launcher.pid}-*"))


@pytest.fixture
def start(cora, shm, tmp_path):
    """start(moment, device, *arguments): a Run, at this moment, that does not outlive the test."""
    runs = []

    def begin(moment: str, device: str, *arguments: str) -> Run:
        env = None
        if (moment, device) == ("loading", "cpu"):
            (tmp_path / "sitecustomize.py").write_text(SLOW_TRAINER)
            env = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
        runs.append(Run(cora, tmp_path / f"run{len(runs)}", shm, device, *arguments, env=env))
        runs[-1].reach(moment)
        return runs[-1]

    yield begin
    for run in runs:
        for pid in [*processes_of(run.out)]:
            os.kill(pid, signal.SIGKILL)
        run.launcher.wait()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("name", "moment"), at_moments(["sampler", "trainer"]))
def test_a_process_is_killed(start, name, moment, device, repeat):
    run = start(moment, device)
    pid = run.find(name)
    os.kill(pid, signal.SIGKILL)
    report = run.end(1)
    assert f"cohort: the {name} (process {pid}) was ended by SIGKILL" in report
    first = report.split("then the")[0]
    stage = re.search(r"its last stage: (.+) \(batch \d+\)", first).group(1)
    early = stage in ("not started", "starting", "loading the data set")
    assert not early if moment == "training" else early or stage == "idle"
    assert f"end of its log ({run.out / name}.log)" in first
    said = [line for line in report.splitlines() if line.startswith("  it said: ")]
    assert not any("its last stage is" in line for line in said)  # this was told before


@pytest.mark.alone
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("name", "moment"), at_moments(["sampler", "trainer of rank 0", "trainer of rank 1"], first=1))
def test_a_process_of_two_ranks_is_killed(start, name, moment, device, repeat):
    run = start(moment, device, *two_ranks(device))
    pid = run.find(name)
    os.kill(pid, signal.SIGKILL)
    report = run.end(1)  # the other trainer has ended too, though it may have waited for this one in an all-reduce
    assert f"cohort: the {name} (process {pid}) was ended by SIGKILL" in report
    assert re.search(r"its last stage: .+ \(batch \d+\)", report.split("then the")[0])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
def test_the_launcher_of_two_ranks_ends(start, number, device, repeat):
    run = start("training", device, *two_ranks(device))
    run.launcher.send_signal(number)
    assert run.launcher.wait(timeout=SECONDS_TO_END) == (128 + number if number == signal.SIGTERM else -number)
    wait_until(lambda: not processes_of(run.out), SECONDS_TO_END, "ending the children")
    if device == "cuda" and number == signal.SIGKILL:  # the next start removes the folder of MPS
        ran("digest", run.data, "--device", device, "--batches", "1")
    assert_nothing_stays(run, SECONDS_TO_END)


@pytest.mark.alone
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("number", "moment"), at_moments([signal.SIGINT, signal.SIGTERM]))
def test_the_launcher_is_told_to_stop(start, number, moment, device, repeat):
    run = start(moment, device)
    run.launcher.send_signal(number)
    report = run.end(128 + number)
    assert f"stopped by signal {number}" in report and "the sampler" not in report and "Traceback" not in report


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("moment", MOMENTS)
def test_the_launcher_is_killed(start, cora, moment, device, repeat):
    run = start(moment, device)
    run.launcher.kill()
    assert run.launcher.wait(timeout=SECONDS_TO_END) == -signal.SIGKILL
    wait_until(lambda: not processes_of(run.out), SECONDS_TO_END, "ending the children")
    if moment == "training" and device == "cpu":
        assert_nothing_stays(run, SECONDS_TO_END)
    else:  # the sampler may not have known its folder yet, and nobody removes that of MPS: the next start does
        ran("digest", cora, "--device", device, "--batches", "1")
        assert_nothing_stays(run, SECONDS_TO_END)


@pytest.mark.parametrize("device", DEVICES)
def test_the_next_start_removes_what_a_run_killed_as_a_whole_left(start, cora, shm, device, repeat):
    run = start("training", device)
    run.launcher.send_signal(signal.SIGSTOP)  # so that it cannot act on the death of the others
    for pid in (run.find("sampler"), run.find("trainer"), run.launcher.pid):
        os.kill(pid, signal.SIGKILL)
    run.launcher.wait(timeout=SECONDS_TO_END)
    [left] = shm.runs()
    following = ran("digest", cora, "--device", device, "--batches", "2")
    assert f"removed the files of a dead run: {left}" in following.stderr
    assert len(following.stdout.splitlines()) == 2
    assert_nothing_stays(run, SECONDS_TO_END)


@pytest.mark.parametrize("device", DEVICES)
def test_the_sampler_of_a_script_is_killed(cora, shm, device, repeat):
    from cohort_gnn import CohortError, NeighborLoader

    with NeighborLoader(cora, [5, 5], batch_size=4, device=device, num_slots=2) as loader:
        iterator = iter(loader)
        next(iterator)
        begin = time.monotonic()
        loader._sampler.process.kill()
        with pytest.raises(CohortError) as report:
            for _ in iterator:
                pass
    assert time.monotonic() - begin < SECONDS_TO_END
    for words in ("the sampler (process ", "it has ended", "its last stage is '", "sampler's log:"):
        assert words in str(report.value)
    assert shm.runs() == []


@pytest.fixture
def small_memory(tmp_path, monkeypatch):
    """2 MB of shared memory."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", folder], capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"a small tmpfs cannot be mounted: {mounted.stderr.strip()}")
    monkeypatch.setenv("COHORT_SHM", str(folder))
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_shared_memory_is_too_small(cora, small_memory, tmp_path, repeat):
    result = cohort("train", cora, "--device", "cpu", "--layers", "pyg", "--out", tmp_path / "run")
    assert result.returncode == 1
    assert "the sampler" in result.stderr and "ended with exit code 1" in result.stderr
    need, have = re.search(r"expected (\S+ [KM]B) of space, found (\S+ [KM]B) free", result.stderr).groups()
    assert float(have.split()[0]) < 2.1 and need.endswith("MB")
    assert "--shm-size" in result.stderr
    assert list(small_memory.glob("cohort-*/run-*")) == []
    assert processes_of(tmp_path / "run") == {}


def test_a_shared_memory_root_that_is_not_there(cora, tmp_path, monkeypatch, repeat):
    monkeypatch.setenv("COHORT_SHM", str(tmp_path / "nowhere"))
    result = cohort("train", cora, "--device", "cpu", "--out", tmp_path / "run")
    assert result.returncode == 1
    assert "nowhere" in result.stderr and "COHORT_SHM" in result.stderr and "Traceback" not in result.stderr


def mps_servers(run: Run) -> list[int]:
    """pids of the servers of the daemon that the run uses."""
    env = os.environ | {"CUDA_MPS_PIPE_DIRECTORY": environment_of(run.find("sampler"))["CUDA_MPS_PIPE_DIRECTORY"]}
    command = ["nvidia-cuda-mps-control"]
    answer = subprocess.run(command, input="get_server_list\n", env=env, capture_output=True, text=True, timeout=20)
    return [int(pid) for pid in answer.stdout.split()]


def assert_a_following_run_works(cora, tmp_path):
    ran("train", cora, "--device", "cuda", "--epochs", "1", *TRAIN, "--out", tmp_path / "following")


@pytest.mark.gpu
def test_the_mps_server_is_killed(start, cora, tmp_path, repeat):
    run = start("training", "cuda")
    if "CUDA_MPS_PIPE_DIRECTORY" not in environment_of(run.find("sampler")):
        pytest.skip(f"the run has no MPS daemon of its own: {run.errors.read_text()}")
    [server] = mps_servers(run)
    os.kill(server, signal.SIGKILL)
    report = run.end(1)
    assert f"the MPS server (process {server}) has ended" in report
    assert_a_following_run_works(cora, tmp_path)


@pytest.mark.gpu
@pytest.mark.alone
def test_an_illegal_access_of_the_sampler(start, cora, tmp_path, repeat):
    run = start("its beginning", "cuda", "--debug-illegal-access-batch", "3")
    run.launcher.wait(timeout=SECONDS_TO_START)
    report = run.end(1)
    assert "illegal memory access" in report
    assert re.search(r"the sampler \(process \d+\) (ended with exit code 1|has failed)\n  its last stage: \w+", report)
    if "the trainer" in report:  # under MPS the fault takes all clients of the GPU with it
        assert re.search(r"the trainer \(process \d+\) .*\n  its last stage: \w+", report)
    assert_a_following_run_works(cora, tmp_path)
