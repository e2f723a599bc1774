"""RUN/timeline.json: what both programs of each rank did, on one clock."""

import json
import time
from collections import defaultdict
from types import SimpleNamespace

import pytest
import torch
from processes import ran, two_ranks
from torch.profiler import ProfilerActivity, profile

from cohort_gnn.trainer.report import recorder as recorders
from cohort_gnn.trainer.report.recorder import Recorder, kernels_of

pytestmark = pytest.mark.usefixtures("shm")
CPU = torch.device("cpu")


def run(data, out, *arguments) -> list[dict]:
    """The events of a run."""
    options = ["--fanout", "4,3", "--hidden", 8, "--batch-size", 100, "--quiet"]
    ran("train", data, *options, "--out", out, *arguments)
    return events_in(out)


def events_in(out) -> list[dict]:
    return json.loads((out / "timeline.json").read_text())["traceEvents"]


def by_track(events: list[dict]) -> dict[tuple[str, str], list[dict]]:
    """{(name of the process, name of the track): its events}"""
    names = {kind: {} for kind in ("process_name", "thread_name")}
    tracks = defaultdict(list)
    for event in events:
        if event["ph"] == "M" and event["name"] in names:
            place = event["pid"] if event["name"] == "process_name" else (event["pid"], event["tid"])
            names[event["name"]][place] = event["args"]["name"]
        elif event["ph"] == "X":
            tracks[event["pid"], event["tid"]].append(event)
    return {
        (names["process_name"][process], names["thread_name"][process, track]): of_track
        for (process, track), of_track in tracks.items()
    }


def end_of(event: dict) -> float:
    return event["ts"] + event["dur"]


def assert_in_order(events: list[dict], slack_us: float) -> None:
    """Every batch is sampled, fetched, then worked on, and no track has two events at once."""
    batches = defaultdict(dict)
    for (process, _), of_track in by_track(events).items():
        of_track = sorted(of_track, key=lambda event: event["ts"])
        assert all(end_of(a) <= b["ts"] + slack_us for a, b in zip(of_track, of_track[1:], strict=False))
        for event in of_track:
            if event["name"] != "wait":
                args = event["args"]
                name = "step" if event["name"] == args["task"] else event["name"]
                batches[process.split(":")[0], args["epoch"], args["task"], args["batch"]][name] = event
    for made in batches.values():
        assert set(made) in ({"sample", "fetch", "step"}, {"step"}), "without seeds it is not made"
        order = [made[name] for name in ("sample", "fetch", "step") if name in made]
        assert all(end_of(a) <= b["ts"] + slack_us for a, b in zip(order, order[1:], strict=False))


@pytest.fixture(scope="module")
def two(cora, tmp_path_factory, shm):
    """(events, summary) of a profiled run of two ranks on the CPU."""
    out = tmp_path_factory.mktemp("trace")
    events = run(cora, out, "--epochs", 3, "--profile", "--device", "cpu", "--ranks", 2)
    return events, json.loads((out / "summary.json").read_text())


def test_both_programs_of_each_rank_have_their_tracks(two):
    wanted = {
        (f"rank {rank}: {role}", track)
        for rank in range(2)
        for role, track in (("sampler", "sample"), ("sampler", "fetch"), ("trainer", "steps"))
    }
    assert set(by_track(two[0])) == wanted
    assert_in_order(two[0], slack_us=2.0)


def test_times_and_sizes_are_those_of_the_summary(two):
    events, summary = two
    tracks = by_track(events)
    for epoch in summary["epochs"][:2]:
        for rank, times in enumerate(epoch["ranks"]):
            steps = [
                event
                for event in tracks[f"rank {rank}: trainer", "steps"]
                if event["args"]["epoch"] == epoch["epoch"] and event["args"]["task"] == "train"
            ]
            seconds = {name: sum(e["dur"] for e in steps if e["name"] == name) / 1e6 for name in ("wait", "train")}
            assert seconds["train"] == pytest.approx(times["train_seconds"] + times["all_reduce_seconds"], abs=1e-4)
            assert seconds["wait"] == pytest.approx(times["wait_seconds"], abs=5e-3)
        made = [e for e in events if e.get("name") == "fetch" and e["args"]["epoch"] == epoch["epoch"]]
        made = [event["args"] for event in made if event["args"]["task"] == "train"]
        for name in ("nodes", "edges"):
            assert sum(batch[name] for batch in made) == epoch[f"num_{name}"]
        assert sum(batch["host_bytes"] for batch in made) == epoch["host_bytes"]
        assert sorted(batch["batch"] for batch in made) == list(range(17)), "1625 seeds in batches of 100"
        assert all(batch["bytes"] == batch["host_bytes"] for batch in made)


def test_a_profile_is_of_two_epochs_with_their_validation(two):
    assert {event["args"]["epoch"] for event in two[0] if event["ph"] == "X"} == {0, 1}
    assert {event["args"]["task"] for event in two[0] if event["ph"] == "X"} == {"train", "validate"}


def test_without_it_forty_training_steps_are_shown_and_a_batch_without_seeds_is_not_made(cora, tmp_path):
    """1625 training nodes in batches of 600 are 3 batches: the second of rank 1 is empty."""
    (tmp_path / "run.json").write_text("of another run")
    (tmp_path / "timeline.json").write_text("of another run")
    small = run(cora, tmp_path, "--device", "cpu", "--batch-size", 20, "--epochs", 2)
    steps = by_track(small)["rank 0: trainer", "steps"]
    assert [e["args"] for e in steps if e["name"] == "wait"] == [
        {"epoch": 1, "task": "train", "batch": batch} for batch in range(40)
    ]
    large = run(cora, tmp_path / "large", "--device", "cpu", "--ranks", 2, "--batch-size", 600, "--epochs", 1)
    sizes = {(process, name): len(of_track) for (process, name), of_track in by_track(large).items()}
    assert sizes["rank 0: sampler", "fetch"] == 2 and sizes["rank 1: sampler", "fetch"] == 1
    assert sizes["rank 0: trainer", "steps"] == sizes["rank 1: trainer", "steps"] == 4
    assert_in_order(large, slack_us=2.0)


def slot(number: int, num_seeds: int = 1):
    """A slot whose sampling and fetching took 10 and 20 us."""
    spans = (9e6, 9e6 + 10, 9e6 + 11, 9e6 + 31) if num_seeds else (0, 0, 0, 0)
    tiers = [(0, 0, 0.0), (0, 0, 0.0), (7, 700, 1e-6), (2, 200, 1e-6), (0, 0, 0.0), (0, 0, 0.0)]
    facts = {"num_sampled_nodes": [1, 3], "num_sampled_edges": [4], "row_tiers": tiers}
    return SimpleNamespace(step=number, num_seeds=num_seeds, spans=spans, **facts)


def a_trainer(out, num_epochs: int, profile: bool = False, at: tuple = (0, 0), rank: int = 0, device=CPU):
    """What a recorder asks a trainer for; `at`: the epoch and step at which the run goes on."""
    ranks = SimpleNamespace(rank=rank, gather=lambda value: [value], share=lambda value, rank: value)
    if rank > 0:
        ranks.gather = lambda value: ((out / "gathered").write_text(value), [value])[1]
    return SimpleNamespace(
        options=SimpleNamespace(epochs=num_epochs, profile=profile),
        running=SimpleNamespace(epoch=at[0], step=at[1]),
        ranks=ranks,
        out=out,
        device=device,
        clock=SimpleNamespace(begun=None, ended=None),
    )


def begun(trainer) -> Recorder:
    recorder = Recorder()
    recorder.run_begins(trainer)
    return recorder


def step(recorder: Recorder, trainer, batch, begin=None, end=None) -> None:
    trainer.clock.begun = time.monotonic() if begin is None else begin
    recorder.step_begins(trainer)
    trainer.clock.ended = time.monotonic() if end is None else end
    recorder.step_ended(trainer, batch)


def record(trainer, *epochs: int) -> None:
    """Epochs of 7 steps of training and 4 of validation, and the test's first step."""
    recorder = begun(trainer)
    for epoch in epochs:
        recorder.epoch_begins(trainer, epoch)
        for trainer.task, count in (("train", 7), ("validate", 4)):
            recorder.pass_begins(trainer)
            for number in range(count):
                step(recorder, trainer, slot(number, num_seeds=number != 1))
        recorder.epoch_ended(trainer, None)
    recorder.pass_begins(trainer)
    step(recorder, trainer, slot(0))


def steps_in(out) -> list[tuple]:
    steps = by_track(events_in(out))["rank 0: trainer", "steps"]
    return [
        tuple(step["args"][name] for name in ("epoch", "task", "batch")) for step in steps if step["name"] != "wait"
    ]


@pytest.mark.parametrize(
    ("num_epochs", "limit", "sizes"), [(3, 100, [7, 4, 7, 4]), (3, 16, [7, 4, 5]), (3, 9, [7, 2]), (1, 100, [7, 4])]
)
def test_a_profile_has_a_limit(tmp_path, monkeypatch, num_epochs, limit, sizes):
    monkeypatch.setattr(recorders, "PROFILED_STEPS", limit)
    record(a_trainer(tmp_path, num_epochs, profile=True), *range(num_epochs))
    passes = [(epoch, task) for epoch in range(2) for task in ("train", "validate")]
    assert steps_in(tmp_path) == [
        (*which, batch) for which, size in zip(passes, sizes, strict=False) for batch in range(size)
    ]


@pytest.mark.parametrize(
    ("at", "num_epochs", "shown"), [((0, 0), 5, 1), ((0, 0), 1, 0), ((0, 3), 5, 1), ((2, 4), 5, 3), ((4, 1), 5, 4)]
)
def test_the_first_whole_epoch_after_the_first_is_shown(tmp_path, at, num_epochs, shown):
    record(a_trainer(tmp_path, num_epochs, at=at), *range(at[0], num_epochs))
    assert steps_in(tmp_path) == [(shown, "train", batch) for batch in range(7)]


def test_a_resumed_run_keeps_the_file(tmp_path):
    (tmp_path / "timeline.json").write_text("before")
    record(a_trainer(tmp_path, 3, at=(0, 5)), 0, 1, 2)
    record(a_trainer(tmp_path, 3, profile=True, at=(1, 0)), 1, 2)
    assert (tmp_path / "timeline.json").read_text() == "before"


def test_a_batch_says_what_was_read(tmp_path):
    record(a_trainer(tmp_path, 3, rank=1), 1)
    events = json.loads(f"[{(tmp_path / 'gathered').read_text()}]")
    fetches = by_track(events)["rank 1: sampler", "fetch"]
    assert len(fetches) == 6, "one of the batches has no seeds"
    assert fetches[0] == {
        "ph": "X", "name": "fetch", "pid": 2, "tid": 1, "ts": pytest.approx(9e6 + 11), "dur": pytest.approx(20),
        "args": {"epoch": 1, "task": "train", "batch": 0, "nodes": 4, "edges": 4, "bytes": 900, "host_bytes": 700,
                 "recent_bytes": 200},
    }  # fmt: skip


def test_the_profilers_times_are_brought_to_our_clock():
    """On the CPU, where the events are operators."""
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        before = time.monotonic()
        torch.ones(300, 300) @ torch.ones(300, 300)
        after = time.monotonic()
    (product,) = [event for event in kernels_of(profiler, ("cpu_op",)) if event["name"] == "aten::mm"]
    begin, end = product["span"]
    assert before - 1e-3 < begin < end < after + 1e-3


class Event:
    """An event of a GPU whose clock is ours."""

    def __init__(self, enable_timing: bool, at: float = 0.0):
        assert enable_timing
        self.at = at

    def record(self) -> None:
        self.at = time.monotonic()

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, later: "Event") -> float:
        """Milliseconds."""
        return 1e3 * (later.at - self.at)


@pytest.fixture
def gpu(monkeypatch) -> torch.device:
    """A device whose events are ours, and that has no profiler."""
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: Event(True))
    monkeypatch.setattr(Recorder, "_stop_profiler", lambda self: None)
    return torch.device("cuda", 0)


def test_events_of_a_gpu_are_counted_from_one_that_both_clocks_know(gpu, tmp_path):
    trainer = a_trainer(tmp_path, 1, device=gpu)
    trainer.task, recorder = "train", begun(trainer)
    recorder.epoch_begins(trainer, 0)
    before = time.monotonic()
    recorder.pass_begins(trainer)
    after = time.monotonic()
    for number in (0, 2):
        begin = before + 2 * number
        step(recorder, trainer, slot(number), Event(True, begin), Event(True, begin + 2))
    recorder.epoch_ended(trainer, None)
    _, first, second, last = by_track(events_in(tmp_path))["rank 0: trainer", "steps"]
    assert first["dur"] == pytest.approx(2e6) and second["name"] == "wait" and second["dur"] == pytest.approx(2e6)
    assert abs(end_of(last) / 1e6 - (before + 6)) <= after - before, "the error is at most what making the log took"


@pytest.mark.parametrize("profiled", [True, False])
def test_a_profile_shows_steps_to_other_profilers(gpu, tmp_path, monkeypatch, profiled):
    seen = []
    monkeypatch.setattr(torch.cuda.nvtx, "range_push", seen.append)
    monkeypatch.setattr(torch.cuda.nvtx, "range_pop", lambda: seen.append("end"))
    trainer = a_trainer(tmp_path, 9, profile=profiled, device=gpu)
    trainer.task, recorder = "train", begun(trainer)
    recorder.pass_begins(trainer)
    step(recorder, trainer, slot(0))
    assert seen == (["train", "end"] if profiled else [])


@pytest.mark.gpu
@pytest.mark.parametrize("num_ranks", [1, 2])
def test_kernels_lie_in_the_trainers_steps(cora, tmp_path, num_ranks):
    ranks = two_ranks("cuda") if num_ranks == 2 else []
    events = run(cora, tmp_path, "--epochs", 3, "--profile", "--device", "cuda", *ranks)
    tracks = by_track(events)
    kernel_tracks = {place for place in tracks if place[1].startswith("stream")}
    for rank in range(num_ranks):
        process = f"rank {rank}: trainer"
        steps = [event for event in tracks[process, "steps"] if event["name"] in ("train", "validate")]
        passes = defaultdict(list)  # between two of them weights are kept, and copied for a checkpoint
        for step in steps:
            passes[step["args"]["epoch"], step["name"]].append(step)
        kernels = [e for place in kernel_tracks if place[0] == process for e in tracks[place]]
        kernels = [e for e in kernels if any(of[0]["ts"] <= e["ts"] <= of[-1]["ts"] for of in passes.values())]
        assert len(kernels) > 20 * len(steps), "forward, backward and optimizer are more"
        inside = [e for e in kernels if any(s["ts"] - 100 <= e["ts"] and end_of(e) <= end_of(s) + 100 for s in steps)]
        assert sum(e["dur"] for e in inside) > 0.8 * sum(e["dur"] for e in kernels), "one clock; 100 us for its error"
    assert_in_order([e for e in events if (e["pid"] % 2 == 0 or e["tid"] == 0)], slack_us=1e3)
