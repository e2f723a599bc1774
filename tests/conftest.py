"""What tests of several rooms share: a data set, and shared memory of their own."""

import fcntl
import gc
import logging
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import warm

# torch here and samplers beside it share few cores; see base/programs.py.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def _begin_with_another_gpu(worker: int) -> None:
    """Each worker of pytest-xdist sees all GPUs, in an order of its own: tests use the first ones."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is None and shutil.which("nvidia-smi"):
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True).stdout
        given = ",".join(map(str, range(len(listed.splitlines()))))
    gpus = (given or "").split(",")
    if len(gpus) > 1:
        first = worker % len(gpus)
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(gpus[first:] + gpus[:first])


# The same number of threads on every machine, where workers of pytest-xdist share its cores.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "2")
    _begin_with_another_gpu(int(os.environ["PYTEST_XDIST_WORKER"].removeprefix("gw")))

# Programs buffer what they print, as users' do.
os.environ.pop("PYTHONUNBUFFERED", None)

# A shell that starts the tests in the background may have it ignored; programs that they start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

warm.use()

gc.disable()  # what is collected stays: looking through it again and again takes a quarter of the time

# Files that take longest: they begin first, so that no worker has one of them left when the others are done.
LONGEST = """docs link_run partitioned round_trip machines resume examples fault edge_features_option predict disk
metrics types losses machine typed_run report own_loss ranks_loader cache targets command typed_graphs tune strangers
pyg_loaders stop negatives_option callbacks import_options nn_gat numerals search bad_inputs bench_step golden
torchrun wheel nn_linear prepare cores readers warm typed batch_weights moved_run kill style layers browser nn_compile
nn_trim sharded_rows typed_predict accuracy""".split()


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """The first worker to collect compiles the modules, whose asserts pytest rewrites; the others wait to read that."""
    tests = os.open(Path(__file__).parent, os.O_RDONLY)
    try:
        fcntl.flock(tests, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        fcntl.flock(tests, fcntl.LOCK_SH)  # side by side
    try:
        return (yield)
    finally:
        os.close(tests)


def pytest_collection_finish():
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items):
    names = [f"{name}_test.py" for name in LONGEST]
    items.sort(key=lambda item: names.index(item.path.name) if item.path.name in names else len(names))


@pytest.fixture(autouse=True)
def fresh_interpreters(request, monkeypatch):
    """Tests with the mark `fresh` start Python as users do; others fork it (warm.py)."""
    if request.node.get_closest_marker("fresh"):
        monkeypatch.setenv(warm.FRESH, "1")


@pytest.fixture(scope="session", autouse=True)
def cache_home(tmp_path_factory):
    """What Cohort remembers of the machine goes into a folder of the tests, not into the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache-home")))
        yield


@pytest.fixture(scope="session", autouse=True)
def cheap_torch():
    """What PyTorch has each test do for nothing: torch.manual_seed() notes for GPUs that are not used where it was
    called, in a millisecond; and pytest attaches its handlers to each of 57 loggers that do not propagate."""
    import torch

    with pytest.MonkeyPatch.context() as patch:
        for backend in (torch.cuda, torch.xpu, torch.mtia):
            patch.setattr(backend, "traceback", SimpleNamespace(format_stack=list), raising=False)
        for name, logger in logging.root.manager.loggerDict.items():
            if name.startswith("torch") and isinstance(logger, logging.Logger):
                patch.setattr(logger, "propagate", True)
        yield


@pytest.fixture(autouse=True)
def same_weights(cheap_torch):
    """Models that a test makes begin with the same weights every time: how well one learns is not left to chance."""
    import torch

    torch.manual_seed(0)


@pytest.fixture(scope="session")
def cora(tmp_path_factory) -> Path:
    """Cora with every edge in both directions: 2708 nodes, 10556 edges, 1433 float32 features, 7 classes."""
    from cohort_gnn.dataset.importing.importer import import_npz

    out = tmp_path_factory.mktemp("data") / "cora"
    import_npz(Path(__file__).parent / "data/cora.npz", out, undirected=True)
    return out


@pytest.fixture
def read_only(cora, tmp_path, monkeypatch) -> Path:
    """Cora in a folder that nobody may write to, whoever runs the test."""
    folder = tmp_path / "cora"
    shutil.copytree(cora, folder, ignore=shutil.ignore_patterns("hotness-*", "peak-*"))
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != folder and access(path, mode))
    return folder


class SharedMemory:
    """A root for run folders that no other test uses (COHORT_SHM)."""

    def __init__(self):
        self.root = Path(tempfile.mkdtemp(prefix="cohort-test-", dir="/dev/shm"))

    def runs(self) -> list[Path]:
        """Folders of runs that are there now."""
        return sorted(self.root.glob("cohort-*/run-*"))


@pytest.fixture(scope="module")
def shm():
    """SharedMemory for the module's runs, which must leave nothing in it."""
    memory = SharedMemory()
    before = os.environ.get("COHORT_SHM")
    os.environ["COHORT_SHM"] = str(memory.root)
    yield memory
    deadline = time.monotonic() + 20  # a sampler ends soon after its script has
    while (left := memory.runs()) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.environ.pop("COHORT_SHM") if before is None else os.environ.update(COHORT_SHM=before)
    shutil.rmtree(memory.root)
    assert left == []
