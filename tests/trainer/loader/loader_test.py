"""NeighborLoader: PyG's batches, equal to what a slow reading of the data set says; and what it refuses."""

import copy
import os
import pickle
import signal
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from processes import SECONDS_TO_END, wait_until
from torch_geometric.data import Data

import cohort_gnn as cohort
from cohort_gnn import CohortError, NeighborLoader
from cohort_gnn.dataset import open as open_dataset

pytestmark = pytest.mark.usefixtures("shm")

SEEDS = np.random.default_rng(7).permutation(2708)[:300]


@pytest.fixture(scope="module")
def graph(cora):
    return open_dataset(cora)


def loader_of(data, fanout=(5, 5), batch_size=64, seeds=SEEDS, **options) -> NeighborLoader:
    return NeighborLoader(data, list(fanout), seeds, batch_size=batch_size, device="cpu", **options)


def test_every_batch_is_what_the_data_set_says(cora, graph):
    """And has the dtypes and shapes of the documentation; oracle/hetero_loader_test.py has what is drawn."""
    with loader_of(cora, (5, 0, 2), shuffle=True) as loader:
        seen = []
        for batch in loader:
            assert isinstance(batch, Data) and batch.num_nodes == len(batch.n_id) == sum(batch.num_sampled_nodes)
            assert (batch.x.dtype, batch.y.dtype, batch.n_id.dtype) == (torch.float32, torch.int64, torch.int64)
            assert (batch.edge_index.dtype, batch.input_id.dtype) == (torch.int64, torch.int64)
            assert batch.x.shape == (batch.num_nodes, 1433) and batch.y.shape == (batch.num_nodes,)
            assert batch.edge_index.shape == (2, sum(batch.num_sampled_edges))
            assert batch.input_id.shape == (batch.batch_size,) == (batch.num_sampled_nodes[0],)
            n_id = batch.n_id.numpy()
            assert np.array_equal(n_id[: batch.batch_size], SEEDS[batch.input_id.numpy()])
            assert np.array_equal(batch.x.numpy(), graph.x[n_id]) and np.array_equal(batch.y.numpy(), graph.y[n_id])
            seen += batch.input_id.tolist()
        assert sorted(seen) == list(range(len(SEEDS)))


def orders(loader, epochs: int) -> list[list[int]]:
    return [[i for batch in loader for i in batch.input_id.tolist()] for _ in range(epochs)]


def test_shuffling_depends_on_seed_and_epoch_alone(cora):
    with loader_of(cora, shuffle=True, seed=3) as loader:
        first = orders(loader, 2)
        loader.epoch = 0
        assert orders(loader, 2) == first
    with loader_of(cora, shuffle=True, seed=3) as again, loader_of(cora, shuffle=True, seed=4) as other:
        assert orders(again, 2) == first
        assert orders(other, 1) != first[:1]
    assert first[0] != first[1] and first[0] != sorted(first[0])
    with loader_of(cora) as plain:
        assert orders(plain, 2) == [list(range(300))] * 2


def test_the_last_batch_and_drop_last(cora):
    with loader_of(cora, batch_size=128) as loader:
        assert [batch.batch_size for batch in loader] == [128, 128, 44] and len(loader) == 3
    with loader_of(cora, batch_size=128, drop_last=True) as loader:
        assert [[batch.batch_size for batch in loader] for _ in range(2)] == [[128, 128]] * 2 and len(loader) == 2


def test_with_nodes_shares_the_sampler(cora, graph):
    mask = torch.zeros(graph.num_nodes, dtype=torch.bool)
    mask[[5, 9, 2000]] = True
    with loader_of(cora) as loader:
        other = loader.with_nodes(mask, num_neighbors=[-1], batch_size=2)
        for _ in range(2):
            assert sum(batch.batch_size for batch in loader) == 300
            assert [batch.n_id[: batch.batch_size].tolist() for batch in other] == [[5, 9], [2000]]
        every = loader.with_nodes(None, batch_size=1000)
        assert sum(batch.batch_size for batch in every) == graph.num_nodes
        assert list(loader.with_nodes(np.empty(0, np.int64))) == []


def test_breaking_off_and_starting_anew(cora):
    with loader_of(cora, batch_size=16) as loader:
        for stop_after in (1, 2, 5, 1, 1, 1, 1, 1, 1, 1, 1, 1):
            for number, batch in enumerate(loader, start=1):
                assert batch.input_id[0] == 16 * (number - 1)
                if number == stop_after:
                    break
        assert sum(batch.batch_size for batch in loader) == 300


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.uint8, torch.float32])
def test_features_keep_their_dtype(tmp_path, dtype):
    generator = torch.Generator().manual_seed(1)
    x = (torch.rand(200, 7, generator=generator) * 200).to(dtype)
    edges = torch.randint(200, (2, 900), generator=generator)
    data = cohort.from_tensors(tmp_path / "data", x=x, y=torch.arange(200) % 5, edge_index=edges)
    with loader_of(data, seeds=None) as loader:
        for batch in loader:
            assert batch.x.dtype == dtype
            assert torch.equal(batch.x.view(torch.uint8), x[batch.n_id].view(torch.uint8))


def test_batches_outlive_the_loader(cora, graph):
    loader = loader_of(cora)
    batch = next(iter(loader))
    loader.close()
    loader.close()
    assert np.array_equal(batch.x.numpy(), graph.x[batch.n_id.numpy()])
    with pytest.raises(CohortError, match="closed"):
        next(iter(loader))
    with pytest.raises(CohortError, match="closed"):
        loader.with_nodes([1])


def test_keeping_all_views_is_refused_and_copies_are_not(cora):
    with loader_of(cora, batch_size=32) as loader:
        with pytest.raises(CohortError, match=r"batch\.clone\(\)"):
            list(loader)
        copies = [batch.clone() for batch in loader]
        assert [copy.batch_size for copy in copies] == [32] * 9 + [12]
        loader.epoch = 1  # the same draws again
        for copy, batch in zip(copies, loader, strict=True):
            assert torch.equal(copy.x, batch.x) and copy.x.data_ptr() != batch.x.data_ptr()
            assert torch.equal(copy.edge_index, batch.edge_index)


def pickled(batch):
    return pickle.loads(pickle.dumps(batch))


@pytest.mark.parametrize("copied", [copy.deepcopy, pickled])
def test_copies_and_pickles_of_a_batch_do_not_hold_its_slot(cora, copied):
    with loader_of(cora, batch_size=32, num_slots=2) as loader:
        copies = [copied(batch) for batch in loader]
        loader.epoch = 0
        for copy_of, batch in zip(copies, loader, strict=True):
            assert type(copy_of) is type(batch) and set(copy_of.keys()) == set(batch.keys())
            assert torch.equal(copy_of.x, batch.x) and torch.equal(copy_of.edge_index, batch.edge_index)
            assert copy_of.num_sampled_nodes == batch.num_sampled_nodes


def test_a_script_that_pickles_a_batch_ends_in_silence(cora):
    lines = [
        "import pickle, sys; from cohort_gnn import NeighborLoader",
        "batch = next(iter(NeighborLoader(sys.argv[1], [5], batch_size=16, device='cpu')))",
        "pickle.dumps(batch)",
    ]
    command = [sys.executable, "-W", "ignore", "-c", "\n".join(lines), str(cora)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_one_loop_at_a_time(cora):
    with loader_of(cora, batch_size=32) as loader:
        other = loader.with_nodes([1, 2, 3])
        with pytest.raises(CohortError, match="one pass over a sampler at a time"):
            for _ in loader:
                for _ in other:
                    pass
        assert sum(batch.batch_size for batch in loader) == 300


def test_a_loop_of_another_thread_is_named(cora, monkeypatch):
    """Where it takes this loop's batch while this one waits for it."""
    with loader_of(cora, batch_size=32) as loader:
        source = loader._sampler.source
        receiver, batches = source._receiver, iter(loader)

        def next_slot(*args):
            monkeypatch.setattr(source, "_receiver", receiver)
            next(source.slots(source.request(0, [1], 32)))
            raise CohortError("channel", "batches of the pass asked for", "the opposite")

        monkeypatch.setattr(source, "_receiver", SimpleNamespace(next=next_slot, request=receiver.request))
        with pytest.raises(CohortError, match="one pass over a sampler at a time, found another pass begun in between"):
            next(batches)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"num_neighbors": []}, "num_neighbors"),
        ({"num_neighbors": [5, -2]}, "num_neighbors"),
        ({"num_neighbors": [2.5]}, "num_neighbors"),
        ({"num_neighbors": 5}, "num_neighbors"),
        ({"num_neighbors": [2**40]}, "num_neighbors"),
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": 1.5}, "batch_size"),
        ({"batch_size": True}, "batch_size"),
        ({"input_nodes": [0, 2708]}, r"\[0, 2708\)"),
        ({"input_nodes": [-1]}, r"\[0, 2708\)"),
        ({"input_nodes": [4, 4]}, "1 duplicates"),
        ({"input_nodes": [1.5]}, "integer ids"),
        ({"input_nodes": [[1], [2]]}, "integer ids"),
        ({"input_nodes": np.ones(5, bool)}, r"a mask of shape \[2708\]"),
        ({"input_nodes": "all"}, "input_nodes"),
        ({"device": "abacus"}, "device"),
        ({"device": "meta"}, "device"),
        ({"num_slots": 1}, "num_slots: expected an integer from 2 to 64"),
        ({"num_slots": "4"}, "num_slots"),
        ({"seed": None}, "seed: expected an integer"),
        ({"seed": -1}, "seed: expected an integer"),
        ({"limit_seconds": "3"}, "limit_seconds: expected a number"),
        ({"limit_seconds": None}, "limit_seconds: expected a number"),
        ({"reuse": "off"}, "reuse: expected true or false"),
        ({"input_nodes": 64}, "the third argument: say batch_size="),
        ({"input_nodes": torch.ones(2708, dtype=torch.uint8)}, "mask.bool"),
        ({"topology": "moon"}, "topology"),
    ],
    ids=str,
)
def test_bad_arguments(cora, shm, arguments, words):
    with pytest.raises(CohortError, match=words):
        NeighborLoader(cora, **({"num_neighbors": [2], "batch_size": 4, "device": "cpu"} | arguments))
    wait_until(lambda: not shm.runs(), SECONDS_TO_END, "removing the folder")


def test_more_hops_than_the_channel_takes(cora):
    with loader_of(cora, [1] * 17) as loader, pytest.raises(CohortError, match="1 to 16 hops"):
        next(iter(loader))


def test_what_is_no_data_set(tmp_path):
    with pytest.raises(CohortError, match="nowhere: expected the folder of a data set, found no such folder"):
        loader_of(tmp_path / "nowhere")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there(cora):
    with pytest.raises(CohortError, match="device='cpu'"):
        NeighborLoader(cora, [2], device="cuda")


def test_a_hung_sampler_is_reported(cora):
    loader = loader_of(cora, batch_size=1, limit_seconds=1.0)
    iterator = iter(loader)
    next(iterator)
    os.kill(loader._sampler.process.pid, signal.SIGSTOP)
    with pytest.raises(CohortError, match="the sampler .* expected progress within 1 s"):
        for _ in iterator:
            pass
    loader._sampler.process.kill()
    loader.close()
