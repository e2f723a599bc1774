"""Events that --tensorboard writes of a run."""

import json
from types import SimpleNamespace

import pytest
from processes import ran

from cohort_gnn.spec.results import EpochReport, RunReport
from cohort_gnn.spec.run import TrainerSpec
from cohort_gnn.trainer.loop.tensorboard import TensorBoard, scalars_of


def a_report(epoch: int) -> EpochReport:
    report = EpochReport(epoch, seconds=2.0, wait_seconds=0.5, loss=1.25 / (epoch + 1))
    report.val_metrics = {"accuracy": 0.75}
    report.row_tiers["host"] |= {"rows": 30, "bytes": 3000}
    report.row_tiers["local"] |= {"rows": 10, "bytes": 1000}
    return report


def a_run(out, *epochs: int, before: int = 0) -> TensorBoard:
    """Tells a callback of epochs of a run that has done some before; and of the test."""
    report = RunReport(test_metrics={"accuracy": 0.5}, epochs=[a_report(epoch) for epoch in range(before)])
    options = TrainerSpec(num_classes=3, feature_dim=4, fanout=[5, 3], lr=0.25)
    optimizer = SimpleNamespace(param_groups=[{"lr": 0.125}])
    of_run = {"options": options, "optimizer": optimizer, "monitor": "accuracy", "report": report}
    trainer = SimpleNamespace(ranks=SimpleNamespace(rank=0), out=out, **of_run)
    board = TensorBoard()
    board.run_begins(trainer)
    for epoch in epochs:
        report.epochs.append(a_report(epoch))
        board.epoch_ended(trainer, report.epochs[-1])
    board.run_ended(trainer, report)
    return board


def events_in(out):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    return accumulator.EventAccumulator(str(out / "tensorboard")).Reload()


def test_scalars_of_an_epoch():
    scalars = scalars_of(a_report(0))
    assert scalars["loss/train"] == 1.25 and scalars["accuracy/val"] == 0.75 and scalars["seconds/wait"] == 0.5
    assert scalars["share/host"] == 0.75 and scalars["share/local"] == 0.25 and scalars["bytes/host"] == 3000
    assert "accuracy/val" not in scalars_of(EpochReport(0))


def test_events_of_epochs_that_are_done_again_count_once(tmp_path):
    pytest.importorskip("tensorboard")
    a_run(tmp_path, 0, 1, 2)
    a_run(tmp_path, 1, 2, 3, before=1)
    events = events_in(tmp_path)
    found = [(event.step, event.value) for event in events.Scalars("loss/train")]
    assert found == [(number, pytest.approx(1.25 / number)) for number in (1, 2, 3, 4)]
    assert [(event.step, event.value) for event in events.Scalars("accuracy/test")][-1] == (4, 0.5)
    assert {event.value for event in events.Scalars("learning_rate")} == {0.125}


def test_options_are_hyperparameters(tmp_path):
    plugin = pytest.importorskip("tensorboard.plugins.hparams.plugin_data_pb2")
    a_run(tmp_path, 0)
    metadata = events_in(tmp_path).summary_metadata["_hparams_/session_start_info"].plugin_data.content
    found = plugin.HParamsPluginData.FromString(metadata).session_start_info.hparams
    assert found["lr"].number_value == 0.25 and found["model"].string_value == "sage"
    assert found["fanout"].string_value == "[5, 3]" and found["amp"].bool_value is False
    assert "patience" not in found and "debug_poison_slots" not in found, "no value, or nobody's choice"


def test_a_full_disk_ends_no_run(tmp_path, monkeypatch, caplog):
    board = pytest.importorskip("torch.utils.tensorboard")

    def refuse(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(board.SummaryWriter, "add_scalar", refuse)
    a_run(tmp_path, 0)
    assert "tensorboard was not written, and the run continues" in caplog.text


@pytest.mark.usefixtures("shm")
def test_a_run_of_two_ranks_writes_one_file(cora, tmp_path):
    pytest.importorskip("tensorboard")
    train = ["--device", "cpu", "--fanout", "4,3", "--batch-size", 100, "--hidden", 8, "--epochs", 2, "--quiet"]
    ran("train", cora, *train, "--ranks", 2, "--tensorboard", "--out", tmp_path)
    summary = json.loads((tmp_path / "summary.json").read_text())
    losses = [event.value for event in events_in(tmp_path).Scalars("loss/train")]
    assert losses == pytest.approx([epoch["loss"] for epoch in summary["epochs"]])
    assert len(list((tmp_path / "tensorboard").iterdir())) == 1
