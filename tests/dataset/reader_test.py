"""An open data set as an object: equality, hash, copies for other processes."""

import multiprocessing
import pickle

import numpy as np

from cohort_gnn.dataset import from_tensors
from cohort_gnn.dataset import open as open_dataset


def test_only_the_same_object_is_equal(cora):
    data, again = open_dataset(cora), open_dataset(cora)
    assert data == data and data != again
    assert len({data, again, data}) == 2


def test_a_pickle_holds_the_path_alone(cora, monkeypatch):
    monkeypatch.chdir(cora.parent)
    text = pickle.dumps(open_dataset(cora.name))
    assert len(text) < 1000
    monkeypatch.chdir("/")
    data = pickle.loads(text)
    assert data.path == cora and data.x.filename == open_dataset(cora).x.filename


def _rows_read(data, answers) -> None:
    answers.put((float(data.x.sum()), data.x.filename))


def test_a_spawned_process_maps_the_same_files(tmp_path):
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    data = open_dataset(from_tensors(tmp_path / "data", x=x, y=np.zeros(3, np.int64), edge_index=[[0, 1], [1, 2]]))
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    process = context.Process(target=_rows_read, args=(data, answers))
    process.start()
    assert answers.get(timeout=60) == (15.0, data.x.filename)
    process.join()
    assert process.exitcode == 0
