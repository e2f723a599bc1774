"""Files of seed sets in shared memory: those of loaders that are gone are removed, and no pass misses its own."""

import gc
import os

import numpy as np
import pytest
import torch

from cohort_gnn import CohortError, LinkNeighborLoader, NeighborLoader
from cohort_gnn.trainer.loader import seed_files
from cohort_gnn.trainer.loader.seed_files import SeedFiles

pytestmark = pytest.mark.usefixtures("shm")


def loader_of(data, seeds, **options) -> NeighborLoader:
    return NeighborLoader(data, [3], seeds, batch_size=64, device="cpu", **options)


def arrays_in(loader) -> list[str]:
    return sorted(file.name for file in loader._sampler.source.folder.glob("*.npy"))


def seeds_of(loader) -> list[int]:
    return [seed for batch in loader for seed in batch.n_id[: batch.batch_size].tolist()]


def test_loaders_of_given_seeds_leave_no_files(cora):
    with loader_of(cora, np.arange(100)) as loader:
        for number in range(12):
            wanted = np.arange(number, 500 + number)
            assert seeds_of(loader.with_nodes(wanted)) == wanted.tolist()
            assert len(arrays_in(loader)) <= 3, "the first loader's, this one's, and those of the one before"
        assert seeds_of(loader) == list(range(100))
        assert "seeds-0.npy" in arrays_in(loader)


def test_loops_that_break_off_leave_no_files(cora):
    with loader_of(cora, np.arange(100), num_slots=2) as loader:
        for number in range(30):
            for batch in loader.with_nodes(np.arange(number, 2000 + number)):
                assert batch.n_id[0] == number
                break
            del batch  # its slot is needed
            loader.with_nodes([number])  # without a loop
        assert len(arrays_in(loader)) <= 3
        assert seeds_of(loader) == list(range(100))


def test_loaders_that_are_kept_keep_their_files(cora):
    with loader_of(cora, np.arange(100)) as loader:
        kept = [loader.with_nodes(np.arange(number, number + 70)) for number in range(4)]
        for _ in range(2):
            for number, other in enumerate(kept):
                assert seeds_of(loader.with_nodes([number])) == [number]
                assert seeds_of(other) == list(range(number, number + 70))
        assert len(arrays_in(loader)) == 6
        del kept, other
        gc.collect()
        loader.with_nodes([1])
        assert len(arrays_in(loader)) == 2


def test_pairs_and_the_weights_of_their_negatives(cora):
    pairs = torch.arange(80).view(2, 40)
    weight = torch.ones(2708)
    how = {"neg_sampling": {"mode": "binary", "src_weight": weight, "dst_weight": weight}, "device": "cpu"}
    with LinkNeighborLoader(cora, [3], pairs, batch_size=16, **how) as loader:
        first = arrays_in(loader)
        assert [name.partition("-")[0] for name in first] == ["pairs", "weights", "weights"]
        for _ in range(5):
            assert sum(1 for _ in loader.with_edges(pairs)) == 3
        names = arrays_in(loader)
        assert set(first) < set(names) and len({name.split("-")[1].partition(".")[0] for name in names}) <= 3, names


def test_a_set_stays_until_its_passes_are_over(tmp_path):
    class Owner:
        pass

    files, owner, ids = SeedFiles(tmp_path), Owner(), np.arange(3)
    files.add(0, {"seeds-0.npy": ids, "seeds-0-times.npy": ids}, owner)
    files.requested(0, 5)
    files.ended_below(5)
    del owner
    files.add(1, {"seeds-1.npy": ids})
    assert sorted(os.listdir(tmp_path)) == ["seeds-0-times.npy", "seeds-0.npy", "seeds-1.npy"]
    files.ended_below(6)
    files.add(2, {"seeds-2.npy": ids})
    assert sorted(os.listdir(tmp_path)) == ["seeds-1.npy", "seeds-2.npy"]


def test_a_set_without_room_leaves_no_file(tmp_path, monkeypatch):
    def save(file, array, save=np.save):
        save(file, array)
        if file.name == "seeds-0.npy":
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(seed_files.np, "save", save)
    with pytest.raises(CohortError, match="seeds-0.npy: expected 24 B of .*found No space left on device"):
        SeedFiles(tmp_path).add(0, {"seeds-0-times.npy": np.arange(3), "seeds-0.npy": np.arange(3)})
    assert os.listdir(tmp_path) == []
