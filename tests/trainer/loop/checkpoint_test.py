"""RUN/checkpoint.pt: what is written comes back; what is damaged, foreign or of another run is told."""

import json
import os
import pickle
import random
from types import SimpleNamespace

import pytest
import torch

from cohort_gnn import CohortError
from cohort_gnn.spec.results import EpochReport
from cohort_gnn.spec.run import TrainerSpec, as_json
from cohort_gnn.trainer.loop.checkpoint import CheckpointFile, identity_of, load_checkpoint
from cohort_gnn.trainer.loop.resume import Checkpoints

IDENTITY = {"model": "sage", "fanout": [5, 3], "lr": 0.01, "num_ranks": 1, "data": "abc"}


def a_state() -> dict:
    torch.manual_seed(1)
    model = torch.nn.Linear(20, 30)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    model(torch.ones(2, 20)).sum().backward()
    optimizer.step()
    return {
        "epoch": 3,
        "step": 7,
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "best_model": None,
        "report": {"epochs": [{"loss": 0.1}], "val_accuracy": None},
        "ranks": [{"random": {"cpu": torch.get_rng_state(), "device": None}, "loss_sum": 1.5, "fastest": float("inf")}],
    }


@pytest.fixture
def file(tmp_path) -> CheckpointFile:
    found = CheckpointFile(tmp_path / "checkpoint.pt", IDENTITY)
    found.write(a_state())
    return found


def same(a, b) -> bool:
    """Whether two nests are equal, bit for bit."""
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b) and a.dtype == b.dtype
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[name], b[name]) for name in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return a == b


def test_what_is_written_comes_back(file):
    state = file.read()
    assert same({name: state[name] for name in a_state()}, a_state())
    assert [path.name for path in file.path.parent.iterdir()] == ["checkpoint.pt"]
    file.write(a_state() | {"step": 8})
    assert file.read()["step"] == 8


def test_without_a_file_there_is_nothing(tmp_path):
    assert CheckpointFile(tmp_path / "checkpoint.pt", IDENTITY).read() is None


def refused(file: CheckpointFile, *words: str) -> None:
    with pytest.raises(CohortError) as report:
        file.read()
    assert str(file.path) in str(report.value) and "hint: " in str(report.value)
    for word in words:
        assert word in str(report.value)


def test_a_file_that_is_cut_is_refused(file):
    whole = file.path.read_bytes()
    for size in [0, 1, 100, len(whole) // 2, len(whole) - 1]:
        file.path.write_bytes(whole[:size])
        refused(file, "expected a checkpoint of cohort train", "damaged or not a checkpoint")


def test_a_bit_that_is_turned_is_found_where_it_changes_anything(file):
    whole, dice, refusals = file.path.read_bytes(), random.Random(5), 0
    for _ in range(300):
        spoiled = bytearray(whole)
        spoiled[dice.randrange(len(whole))] ^= 1 << dice.randrange(8)
        file.path.write_bytes(bytes(spoiled))
        try:
            state = file.read()
        except CohortError:
            refusals += 1
        else:
            assert same({name: state[name] for name in a_state()}, a_state()), "padding of the archive"
    assert refusals > 200


class Harmful:
    def __reduce__(self):
        return os.mkdir, ("harm",)


@pytest.mark.parametrize("kind", ["text", "pickle", "code", "weights", "list"])
def test_what_another_program_has_written_is_refused_and_not_run(file, kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if kind == "text":
        file.path.write_text("epoch 3\n")
    elif kind == "pickle":
        file.path.write_bytes(pickle.dumps(Harmful()))
    else:
        torch.save({"code": Harmful(), "weights": {"weight": torch.ones(3)}, "list": [1, 2]}[kind], file.path)
    refused(file, "damaged or not a checkpoint")
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": 1}, ["version: expected 5, found 1", "continue with the version"]),
        ({"epoch": "3"}, ["epoch: expected a member of", "found '3'"]),
        ({"ranks": None}, ["ranks: expected a member of"]),
        ({"model": 5}, ["model: expected a member of"]),
    ],
)
def test_members_that_are_not_what_they_must_be_are_refused(file, change, words):
    torch.save(torch.load(file.path, weights_only=True) | change, file.path)
    refused(file, *words)


def test_a_folder_in_its_place_is_refused(file):
    file.path.unlink()
    file.path.mkdir()
    refused(file)


@pytest.mark.parametrize(("name", "value"), [("lr", 0.02), ("fanout", [5, 4]), ("num_ranks", 2), ("data", "abd")])
def test_the_checkpoint_of_another_run_is_refused(file, name, value):
    other = CheckpointFile(file.path, IDENTITY | {name: value})
    refused(other, f"{name}: expected {value!r}, found {IDENTITY[name]!r}", "another run")
    assert load_checkpoint(file.path)["identity"] == IDENTITY


def test_an_option_that_came_after_a_checkpoint_counts_as_its_default(file):
    assert CheckpointFile(file.path, IDENTITY | {"importance_sampling": False}).read() is not None
    later = CheckpointFile(file.path, IDENTITY | {"importance_sampling": True})
    refused(later, "importance_sampling: expected True, found False", "another run")


def test_the_identity_follows_what_the_losses_follow(tmp_path):
    sampler = {"dataset": str(tmp_path), "device": "cpu", "num_ranks": 1, "seed": 3, "channel": "a"}
    sizes = {"num_classes": 3, "feature_dim": 4}
    trainer = {"task": "train"} | as_json(TrainerSpec(lr=0.1, seed=3, checkpoint_every=5, **sizes))
    run = {"trainer": trainer, "sampler": sampler, "data": {"labels": "a0"}}
    identity = identity_of(run)
    assert json.loads(json.dumps(identity)) == identity
    free = {"trainer": run["trainer"] | {"quiet": True, "checkpoint_every": None}}
    assert identity_of(run | free | {"sampler": sampler | {"channel": "b"}}) == identity
    assert identity_of(run | {"trainer": run["trainer"] | {"lr": 0.2}}) != identity
    assert identity_of(run | {"sampler": sampler | {"num_ranks": 2}}) != identity
    for name, value in {"seed": 4, "fanout": [3], "batch_size": 7, "model": "gcn", "dropout": 0.1}.items():
        assert identity_of(run | {"trainer": trainer | {name: value}}) != identity
    for name, value in {"slots": 9, "cache_ratio": [0.5], "epochs": 99, "gpus": [3], "mps": False}.items():
        assert identity_of(run | {"trainer": trainer | {name: value}}) == identity
    parts = {"trainer": run["trainer"] | {"parts": {"parts": "here", "cliques": [[0]]}}}
    moved = {"trainer": run["trainer"] | {"parts": {"parts": "there", "cliques": [[0]]}}}
    assert identity_of(run | parts) == identity_of(run | moved) != identity
    assert identity_of(run | {"data": {"labels": "a1"}}) != identity


@pytest.mark.parametrize(
    ("seconds", "options", "saved"),
    [
        ([0.4, 0.5, 0.2, 0.9, 0.2, 0.1], {}, [3, 5, 6]),  # each in which a second has passed since, and the last
        ([1.5, 2, 1], {}, [1, 2, 3]),
        ([1.5, 2, 1], {"checkpoint_every": 100}, [3]),
    ],
)
@pytest.mark.parametrize("num_ranks", [1, 2])
def test_a_second_lies_between_the_checkpoints_of_epochs(file, seconds, options, saved, num_ranks):
    """By the clock of the first rank, which all ranks know."""
    found = []
    checkpoints = Checkpoints(file)
    trainer = SimpleNamespace(
        options=SimpleNamespace(**{"checkpoint_every": None, "epochs": len(seconds)} | options),
        stops_early=False,
        ranks=SimpleNamespace(local_rank=1),
        running=SimpleNamespace(epoch=0, step=0),
        state=lambda: found.append(trainer.running.epoch),
    )
    for epoch, each in enumerate(seconds):
        parts = [EpochReport(epoch, each / 2, between_seconds=each / 2), EpochReport(epoch, 77)][:num_ranks]
        report = parts[-1]
        report.merge(parts)
        trainer.running.epoch = epoch + 1
        checkpoints.epoch_ended(trainer, report)
    assert found == saved
