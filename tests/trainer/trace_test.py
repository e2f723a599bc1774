"""`cohort train --profile`: RUN/trace.json has what both programs of each rank did, on one clock."""

import json
import time
from collections import defaultdict
from types import SimpleNamespace

import pytest
import torch
from processes import cohort, two_ranks

from cohort.base.errors import CohortError
from cohort.trainer.report import recorder as recorders
from cohort.trainer.report.kernel_trace import ON_GPU, KernelTrace, events_of
from cohort.trainer.report.recorder import Recorder
from cohort.trainer.report.trace import merge, write_part

pytestmark = pytest.mark.usefixtures("shm")
CPU = torch.device("cpu")
ONE_RANK = SimpleNamespace(rank=0, size=1, gather=lambda value: [value])


def run(data, out, *arguments) -> tuple[list[dict], dict]:
    """The trace's events and the summary of a run of three epochs."""
    options = ["--fanout", "4,3", "--hidden", 8, "--batch-size", 100, "--epochs", 3, "--quiet", "--profile"]
    result = cohort("train", data, *options, "--out", out, *arguments)
    assert result.returncode == 0, result.stderr
    trace = json.loads((out / "trace.json").read_text())
    return trace["traceEvents"], json.loads((out / "summary.json").read_text())


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


def assert_apart(events: list[dict]) -> None:
    """One ends before the next begins (0.01 us: a double near 1e12)."""
    assert all(end_of(before) <= after["ts"] + 0.01 for before, after in zip(events, events[1:], strict=False))


@pytest.fixture(scope="module")
def two(cora, tmp_path_factory, shm):
    """(folder, events, summary) of a run of two ranks on the CPU."""
    out = tmp_path_factory.mktemp("trace")
    return out, *run(cora, out, "--device", "cpu", "--ranks", 2)


def test_both_programs_of_each_rank_have_their_tracks(two):
    out, events, _ = two
    wanted = {
        (f"rank {rank}: {role}", track)
        for rank in range(2)
        for role, track in (("sampler", "sample"), ("sampler", "fetch"), ("trainer", "steps"))
    }
    tracks = by_track(events)
    assert set(tracks) == wanted and not list(out.glob("trace-*"))
    for of_track in tracks.values():
        assert_apart(sorted(of_track, key=lambda event: event["ts"]))


def test_times_and_sizes_are_those_of_the_summary(two):
    _, events, summary = two
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


def test_only_two_epochs_with_their_validation_are_traced(two):
    _, events, _ = two
    assert {event["args"]["epoch"] for event in events if event["ph"] == "X"} == {0, 1}
    assert {event["args"]["task"] for event in events if event["ph"] == "X"} == {"train", "validate"}


def test_a_batch_is_sampled_then_fetched_then_worked_on(two):
    batches = defaultdict(dict)
    for event in two[1]:
        if event["ph"] == "X" and event["name"] != "wait":
            args = event["args"]
            name = "step" if event["name"] in ("train", "validate") else event["name"]
            batches[args["epoch"], args["task"], args["batch"]][name] = event
    assert len(batches) > 40
    for made in batches.values():
        assert set(made) in ({"sample", "fetch", "step"}, {"step"}), "without seeds it is not made"
        order = [made[name] for name in ("sample", "fetch", "step") if name in made]
        assert all(end_of(before) <= after["ts"] + 1 for before, after in zip(order, order[1:], strict=False))


def test_without_profile_there_is_no_trace(cora, tmp_path):
    for name in ("run.json", "trace.json"):
        (tmp_path / name).write_text("of another run")
    options = ["--device", "cpu", "--fanout", "2", "--batch-size", 900, "--epochs", 1, "--hidden", 8, "--quiet"]
    assert cohort("train", cora, *options, "--out", tmp_path).returncode == 0
    assert not list(tmp_path.glob("trace*"))


def slot(number: int):
    tiers = [(0, 0, 0.0)] * 4
    sizes = {"num_seeds": 1, "num_sampled_nodes": [1, 1], "num_sampled_edges": [1]}
    return SimpleNamespace(step=number, spans=(0, 1, 1, 2), row_tiers=tiers, **sizes)


def steps_of(recorder: Recorder, task: str, count: int) -> None:
    recorder.pass_begins(task)
    for number in range(count):
        recorder.step_begins(time.monotonic())
        recorder.step_ended(time.monotonic(), slot(number))


@pytest.mark.parametrize(
    ("num_epochs", "limit", "traced"),
    [(3, 100, [7, 4, 7, 4]), (3, 16, [7, 4, 5]), (3, 9, [7, 2]), (1, 100, [7, 4])],
)
def test_a_trace_has_a_limit_and_the_timeline_is_made_beside_it(tmp_path, monkeypatch, num_epochs, limit, traced):
    monkeypatch.setattr(recorders, "PROFILED_STEPS", limit)
    monkeypatch.setattr(recorders, "TIMELINE_STEPS", 6)
    recorder = Recorder(CPU, num_epochs, profile=True)
    for epoch in range(num_epochs):
        recorder.epoch_begins(epoch)
        steps_of(recorder, "train", 7)
        steps_of(recorder, "validate", 4)
        recorder.epoch_ended(ONE_RANK, tmp_path)
    steps_of(recorder, "validate", 4)  # the test, after all epochs
    events = by_track(json.loads((tmp_path / "trace.json").read_text())["traceEvents"])
    steps = [event["args"] for event in events["rank 0: trainer", "steps"] if event["name"] != "wait"]
    passes = [(epoch, task, size) for epoch in range(2) for task, size in (("train", 7), ("validate", 4))]
    wanted = [
        {"epoch": epoch, "task": task, "batch": batch}
        for (epoch, task, _), size in zip(passes, traced, strict=False)
        for batch in range(size)
    ]
    assert [{name: step[name] for name in ("epoch", "task", "batch")} for step in steps] == wanted
    timeline = json.loads((tmp_path / "timeline.json").read_text())
    assert timeline["epoch"] == min(1, num_epochs - 1) and len(timeline["ranks"][0]["train"]) == 6


def test_kernels_have_a_track_a_stream(tmp_path):
    kernels = [{"name": f'a "{i}"\n', "stream": 7 * (i % 2), "span": (i, i + 0.5), "args": {}} for i in range(4)]
    write_part(tmp_path / "trace-1.part", 1, [], kernels)
    merge([tmp_path / "trace-1.part"], tmp_path / "trace.json")
    tracks = by_track(json.loads((tmp_path / "trace.json").read_text())["traceEvents"])
    assert {name: [event["ts"] for event in events] for name, events in tracks.items()} == {
        ("rank 1: trainer", "stream 0"): [0, 2e6],
        ("rank 1: trainer", "stream 7"): [1e6, 3e6],
    }
    assert tracks["rank 1: trainer", "stream 7"][0]["name"] == 'a "1"\n'


def test_the_profilers_times_are_brought_to_our_clock():
    """On the CPU, where the events are operators."""
    profiled = KernelTrace(CPU)
    profiled.start()
    before = time.monotonic()
    torch.ones(300, 300) @ torch.ones(300, 300)
    after = time.monotonic()
    profiled.stop()
    (product,) = [event for event in profiled.events(("cpu_op",)) if event["name"] == "aten::mm"]
    begin, end = product["span"]
    assert before - 1e-3 < begin < end < after + 1e-3


def test_the_shortest_mark_counts_and_other_categories_are_left_out():
    found = [
        {"ph": "X", "cat": "user_annotation", "name": "a", "ts": 1000.0, "dur": 2.0},
        {"ph": "X", "cat": "user_annotation", "name": "b", "ts": 2000.0, "dur": 2.0},
        {"ph": "X", "cat": "kernel", "name": "k", "ts": 2011.0, "dur": 5.0, "args": {"stream": 7, "grid": [1], "x": 0}},
        {"ph": "X", "cat": "cpu_op", "name": "o", "ts": 2010.0, "dur": 9.0},
        {"ph": "M", "name": "process_name", "args": {}},
    ]
    (kernel,) = events_of(found, {"a": (50.0, 50.9), "b": (60.0, 60.1)}, ON_GPU)
    assert (kernel["name"], kernel["stream"], kernel["args"]) == ("k", 7, {"grid": [1]})
    assert kernel["span"] == (pytest.approx(60.05001), pytest.approx(60.050015))
    with pytest.raises(CohortError, match="torch.profiler's trace: expected an event"):
        events_of(found, {"c": (0.0, 1.0)}, ON_GPU)


@pytest.mark.gpu
@pytest.mark.parametrize("num_ranks", [1, 2])
def test_kernels_lie_in_the_trainers_steps(cora, tmp_path, num_ranks):
    ranks = two_ranks("cuda") if num_ranks == 2 else []
    tracks = by_track(run(cora, tmp_path, "--device", "cuda", *ranks)[0])
    for rank in range(num_ranks):
        process = f"rank {rank}: trainer"
        steps = [event for event in tracks[process, "steps"] if event["name"] in ("train", "validate")]
        passes = defaultdict(list)  # between two of them weights are kept, and copied for a checkpoint
        for step in steps:
            passes[step["args"]["epoch"], step["name"]].append(step)
        kernels = [e for (name, track), of in tracks.items() if name == process and track != "steps" for e in of]
        kernels = [e for e in kernels if any(of[0]["ts"] <= e["ts"] <= of[-1]["ts"] for of in passes.values())]
        assert len(kernels) > 20 * len(steps), "forward, backward and optimizer are more"
        inside = [e for e in kernels if any(s["ts"] - 100 <= e["ts"] and end_of(e) <= end_of(s) + 100 for s in steps)]
        assert sum(e["dur"] for e in inside) > 0.8 * sum(e["dur"] for e in kernels), "one clock; 100 us for its error"
