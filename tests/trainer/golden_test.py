"""Digests of data sets and of their batches, as files in tests/data/digests: whoever changes one bit is told here.

python tests/trainer/golden_test.py --write     writes the files anew, for a change that is meant
"""

import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from processes import ALL_TESTS, ran

import cohort_gnn as package
from cohort_gnn.dataset import from_tensors, generate
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.dataset.importing.importer import import_npz
from cohort_gnn.launch.data.prepare import encoded_rows_writer

pytestmark = pytest.mark.usefixtures("shm")
DATA = Path(__file__).parents[1] / "data"
MEMBERS = ("batch", "batch_size", "e_id", "edge_index", "edge_weight", "indptr", "input_id", "n_id")
MEMBERS += ("num_sampled_edges", "num_sampled_nodes", "x", "y")
BATCHES = 3  # of each case, more than there are slots in a test; the slow sampler of loader/oracle has any step


def _cora(out: Path) -> None:
    import_npz(DATA / "cora.npz", out, undirected=True)


def _generated(kind: str, **options) -> Callable[[Path], None]:
    sizes = {"nodes": 5000, "edges": 60_000, "classes": 5, "split": (0.5, 0.2, 0.2), "seed": 11}
    return lambda out: generate(out, kind=kind, **sizes | options)


def _encoded(dtype: str, codec: str) -> Callable[[Path], None]:
    """Rows that are written encoded, never raw."""
    return _generated("powerlaw", dim=96, dtype=dtype, write_rows=encoded_rows_writer(codec, 0))


def _renumbered(out: Path) -> None:
    """Nodes in the order of their in-degrees, rows encoded."""
    raw = out.with_name("raw")
    generate(raw, kind="powerlaw", nodes=3000, edges=40_000, dim=33, classes=4, seed=5)
    ran("dataset", "prepare", raw, "--reorder", "degree", "--codec", "exponent")
    (raw / "prepared").rename(out)


def _multilabel(out: Path) -> None:
    """Nodes without edges, one that all others lead to, edges of equal ends, unknown labels."""
    rng = np.random.default_rng(3)
    ends = rng.integers(0, 900, (2, 5000))
    hub = np.stack([np.arange(1000), np.full(1000, 7)])
    y = rng.integers(-1, 2, (1000, 6)).astype(np.int8)
    x = rng.standard_normal((1000, 5)).astype(np.float32)
    from_tensors(out, x=x, y=y, edge_index=np.concatenate([ends, hub, ends[:, :50]], 1), task="multilabel", seed=2)


def _regression(out: Path) -> None:
    rng = np.random.default_rng(4)
    y = rng.standard_normal(2000).astype(np.float32)
    y[::9] = np.nan
    x = torch.from_numpy(rng.standard_normal((2000, 24)).astype(np.float32)).to(torch.bfloat16)
    from_tensors(out, x=x, y=y, edge_index=rng.integers(0, 2000, (2, 30_000)), task="regression", seed=2)


def _temporal(out: Path) -> None:
    """Events between nodes, one of which has a tenth; many at the same time."""
    rng = np.random.default_rng(6)
    ends, time = rng.integers(0, 1500, (2, 20_000)), rng.integers(-30, 100, 20_000)
    ends[1, ::10] = 7
    x = rng.standard_normal((1500, 8)).astype(np.float32)
    from_tensors(out, x=x, y=rng.integers(0, 3, 1500), edge_index=ends, edge_time=time, seed=2)


SETS = {
    "cora": _cora,
    "sbm": _generated("sbm", dim=16),
    "powerlaw": _generated("powerlaw", dim=100),
    "rmat-undirected": _generated("rmat", nodes=4096, dim=64, dtype="float16", undirected=True),
    "uint8": _generated("sbm", dim=70, dtype="uint8"),
    "edge-weights": _generated("powerlaw", dim=8, undirected=True, edge_weights=True),
    "exponent": _encoded("float32", "exponent"),
    "invariant-bfloat16": _encoded("bfloat16", "invariant"),
    "renumbered": _renumbered,
    "multilabel": _multilabel,
    "regression": _regression,
    "temporal": _temporal,
}
LOADERS = {
    "10,5": {"num_neighbors": [10, 5], "batch_size": 64, "shuffle": True},
    "15,10,5": {"num_neighbors": [15, 10, 5], "batch_size": 40, "shuffle": True, "seed": 7},
    "-1,3": {"num_neighbors": [-1, 3], "batch_size": 16, "edge_ids": True},
    "4,-1": {"num_neighbors": [4, -1], "batch_size": 8, "seed": 3, "drop_last": True},
    "25": {"num_neighbors": [25], "batch_size": 100, "shuffle": True, "edge_ids": True},
}


def files_of(folder: Path) -> list[str]:
    """A line a file of arrays: what is written must not change either."""
    paths = sorted(path for path in folder.rglob("*") if path.suffix in (".npy", ".ibp"))
    return [f"file {path.relative_to(folder)} {hashlib.sha256(path.read_bytes()).hexdigest()[:32]}" for path in paths]


def digest_of(batch) -> str:
    """SHA-256 over the members of a batch that MEMBERS names, with their types and sizes; 32 hex digits of it."""
    sha = hashlib.sha256()
    for name, value in ((name, batch[name]) for name in MEMBERS if name in batch):
        sha.update(name.encode())
        if isinstance(value, torch.Tensor):
            value = value.contiguous().cpu()
            sha.update(f"{value.dtype} {list(value.shape)}".encode())
            sha.update(value.view(torch.uint8).numpy().data if value.numel() else b"")
        else:
            sha.update(json.dumps(value).encode())
    return sha.hexdigest()[:32]


def batches_of(folder: Path, name: str, **more) -> list[str]:
    """ "loader epoch:step nodes edges digest", a line a batch."""
    options = LOADERS[name] | more
    data = open_dataset(folder)
    if data.edge_weights is not None:
        options = options | {"edge_weights": True}
    seeds = data.train_ids
    if data.edge_times is not None:
        strategy = "last" if "edge_ids" in options else "uniform"
        options = options | {"time_attr": "time", "input_time": seeds % 110, "temporal_strategy": strategy}
    lines = []
    with package.NeighborLoader(folder, input_nodes=seeds, **options) as loader:
        while len(lines) < BATCHES:
            epoch = loader.epoch
            for step, batch in enumerate(loader):
                if len(lines) < BATCHES:
                    ends = f"{epoch}:{step} {batch.num_nodes} {batch.num_edges}"
                    lines.append(f"batches {name} {ends} {digest_of(batch)}")
                del batch
    return lines


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """folders(name): the data set, made once."""
    made = {}

    def folder_of(name: str) -> Path:
        if name not in made:
            made[name] = tmp_path_factory.mktemp("golden") / "set"
            SETS[name](made[name])
        return made[name]

    return folder_of


def golden(name: str) -> list[str]:
    return (DATA / "digests" / f"{name}.txt").read_text().splitlines()


@pytest.mark.parametrize("name", SETS)
def test_files_and_batches_are_those_of_before(folders, name):
    folder = folders(name)
    lines = files_of(folder)
    for loader in LOADERS:
        lines += batches_of(folder, loader, device="cpu")
    assert lines == golden(name)


def test_slots_and_order_change_no_batch(folders):
    expected = [line for line in golden("powerlaw") if line.startswith("batches 10,5 ")]
    assert batches_of(folders("powerlaw"), "10,5", device="cpu", num_slots=2, order="asis") == expected


GPU_MODES = {
    "plain": {},
    "cached": {"cache_ratio": 0.2},
    "encoded": {"cache_ratio": 0.2, "compress": "both", "reuse": True},
    "host": {"cache_policy": "none", "topology": "host", "reuse": True},
}


@pytest.mark.gpu
@pytest.mark.parametrize("mode", GPU_MODES)
@pytest.mark.parametrize("name", SETS)
def test_a_gpu_makes_the_same_batches(folders, name, mode):
    if mode == "encoded" and not open_dataset(folders(name)).encoded_rows:
        options = {"cache_ratio": 0.2, "reuse": True}  # rows that nobody has encoded
    else:
        options = GPU_MODES[mode]
    # A mode with every loader of some sets, a set with every loader in some mode; --all: each with each.
    first = (list(GPU_MODES).index(mode) - list(SETS).index(name)) % len(GPU_MODES)
    loaders = list(LOADERS) if ALL_TESTS else list(LOADERS)[first :: len(GPU_MODES)]
    for loader in loaders:
        lines = batches_of(folders(name), loader, device="cuda", **options)
        assert lines == [line for line in golden(name) if line.startswith(f"batches {loader} ")]


def write() -> None:
    """Writes all files anew."""
    import tempfile

    (DATA / "digests").mkdir(exist_ok=True)
    for name, make in SETS.items():
        with tempfile.TemporaryDirectory() as parent:
            folder = Path(parent) / "set"
            make(folder)
            lines = files_of(folder)
            for loader in LOADERS:
                lines += batches_of(folder, loader, device="cpu")
            (DATA / "digests" / f"{name}.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__" and "--write" in sys.argv:
    write()
