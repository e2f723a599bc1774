"""What programs that watch a run are told."""

import re

import pytest

from cohort.trainer.report import watch as watch_module
from cohort.trainer.report.metrics import EpochReport
from cohort.trainer.report.watch import Watch, scalars_of

SAMPLE = re.compile(r'[a-zA-Z_:][\w:]*\{[a-z]+="(?:[^"\\\n]|\\["\\n])*"(?:,[a-z]+="[^"]*")*\} -?[\d.e+-]+')


def a_report(epoch: int) -> EpochReport:
    report = EpochReport(epoch, seconds=2.0, wait_seconds=0.5, loss=1.25 / (epoch + 1))
    report.val_metrics = {"accuracy": 0.75}
    report.row_tiers["host"] |= {"rows": 30, "bytes": 3000}
    report.row_tiers["local"] |= {"rows": 10, "bytes": 1000}
    return report


def read(path) -> dict[str, float]:
    """The samples of a file, each line of which Prometheus takes."""
    samples = {}
    for line in path.read_text().splitlines():
        if not re.fullmatch(r"# TYPE cohort_\w+ (gauge|counter)", line):
            assert SAMPLE.fullmatch(line), line
            name, _, value = line.rpartition(" ")
            samples[name] = float(value)
    return samples


def test_scalars_of_an_epoch():
    scalars = scalars_of(a_report(0))
    assert scalars["loss/train"] == 1.25 and scalars["accuracy/val"] == 0.75 and scalars["seconds/wait"] == 0.5
    assert scalars["share/host"] == 0.75 and scalars["share/local"] == 0.25 and scalars["bytes/host"] == 3000
    assert "accuracy/val" not in scalars_of(EpochReport(0))


def test_the_file_for_prometheus(tmp_path, monkeypatch):
    file = tmp_path / "cohort.prom"
    watch = Watch(tmp_path / 'a "run"', prometheus=file, num_ranks=2)
    run = r'run="a \"run\""'
    watch.step(10)
    assert read(file)[f"cohort_seeds_total{{{run}}}"] == 20
    watch.step(10)
    assert read(file)[f"cohort_seeds_total{{{run}}}"] == 20, "written again at once"
    monkeypatch.setattr(watch_module, "WRITE_SECONDS", 0.0)
    watch.step(10)
    assert read(file)[f"cohort_seeds_total{{{run}}}"] == 60
    watch.epoch_ended(a_report(1))
    samples = read(file)
    assert samples[f"cohort_epochs_total{{{run}}}"] == 2 and samples[f"cohort_running{{{run}}}"] == 1
    assert samples[f'cohort_seconds{{{run},of="wait"}}'] == 0.5 and samples[f'cohort_bytes{{{run},of="host"}}'] == 3000
    watch.run_ended({"accuracy": 0.5})
    types = [line for line in file.read_text().splitlines() if line.startswith("#")]
    assert len(set(types)) == len(types), "a metric has one group of lines"
    samples = read(file)
    assert samples[f'cohort_accuracy{{{run},of="test"}}'] == 0.5 and samples[f"cohort_running{{{run}}}"] == 0
    assert [path.name for path in tmp_path.iterdir()] == ["cohort.prom"], "temporary files are left"


@pytest.mark.parametrize("error", [RuntimeError, SystemExit])
def test_a_run_that_fails_or_is_stopped_runs_no_more(tmp_path, error):
    file = tmp_path / "cohort.prom"
    with pytest.raises(error), Watch(tmp_path, prometheus=file) as watch:
        watch.step(10)
        assert read(file)[f'cohort_running{{run="{tmp_path.name}"}}'] == 1
        raise error
    assert read(file)[f'cohort_running{{run="{tmp_path.name}"}}'] == 0


def test_nobody_asked(tmp_path):
    watch = Watch(tmp_path)
    watch.step(3)
    watch.epoch_ended(a_report(0))
    watch.run_ended({})
    assert list(tmp_path.iterdir()) == []


def test_events_for_tensorboard(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    watch = Watch(tmp_path, tensorboard=True)
    for epoch in range(3):
        watch.epoch_ended(a_report(epoch))
    watch.run_ended({"accuracy": 0.5})
    events = accumulator.EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [(event.step, event.value) for event in events.Scalars("loss/train")] == [
        (1, 1.25),
        (2, 0.625),
        (3, pytest.approx(1.25 / 3)),
    ]
    assert events.Scalars("accuracy/test")[0].value == 0.5


def test_a_run_that_goes_on_counts_what_it_had_done(tmp_path, monkeypatch):
    monkeypatch.setattr(watch_module, "WRITE_SECONDS", 0.0)
    file = tmp_path / "cohort.prom"
    watch = Watch(tmp_path, prometheus=file)
    watch.take_up(3, 500)
    watch.step(20)
    samples = {name.partition("{")[0]: value for name, value in read(file).items()}
    assert samples["cohort_seeds_total"] == 520 and samples["cohort_epochs_total"] == 3


def test_a_full_disk_does_not_end_the_run(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(watch_module, "WRITE_SECONDS", 0.0)
    Watch(tmp_path, prometheus=tmp_path / "nowhere" / "cohort.prom").step(1)
    assert "cohort.prom was not written, and the run goes on" in caplog.text


def test_nor_does_it_end_a_run_that_is_done(tmp_path, monkeypatch, caplog):
    pytest.importorskip("tensorboard")

    def refuse(*_):
        raise OSError(28, "No space left on device")

    watch = Watch(tmp_path, tensorboard=True)
    monkeypatch.setattr(watch._events, "add_scalar", refuse)
    watch.run_ended({"accuracy": 0.5})
    assert "tensorboard was not written, and the run goes on" in caplog.text


def test_scalars_of_epochs_that_are_done_again_count_once(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    first = Watch(tmp_path, tensorboard=True)
    for epoch in range(3):
        first.epoch_ended(a_report(epoch))
    second = Watch(tmp_path, tensorboard=True)
    second.take_up(1, 100)
    for epoch in (1, 2, 3):
        second.epoch_ended(a_report(epoch))
    second.run_ended({})
    events = accumulator.EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [event.step for event in events.Scalars("loss/train")] == [1, 2, 3, 4]
