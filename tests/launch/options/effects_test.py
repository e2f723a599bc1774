"""Options to which a run pays no heed are named, each with what it lacks."""

import pytest

from cohort_gnn.launch.bench.parts import FETCH_OPTIONS
from cohort_gnn.launch.options.effects import TEXTS, say_what_has_no_effect
from cohort_gnn.spec.options import Needs
from cohort_gnn.spec.run import RunSpec, SamplerSpec

CACHE = "a cache (--cache-ratio, --cache-bytes)"
CASES = [
    ({}, []),
    ({"topology": "host"}, [f"--topology host: no effect without a GPU or {CACHE}"]),
    ({"topology": "host", "cliques": "2x4", "cache_bytes": [1000]}, []),
    ({"cliques": "2x4"}, [f"--cliques 2x4: no effect without {CACHE} or --partition"]),
    ({"cliques": "2x4", "partition": True}, []),
    ({"cache_policy": "degree"}, [f"--cache-policy degree: no effect without {CACHE}"]),
    ({"ahead": 3}, ["--ahead 3: no effect without rows on the disk (--host-bytes) or on other machines"]),
    ({"ahead": 3, "host_bytes": 1000}, []),
    ({"reuse": False, "fetch_sms": 4}, ["--no-reuse, --fetch-sms 4: no effect without a GPU"]),
    ({"matmul_precision": "high"}, ["--matmul-precision high: no effect without a GPU or AMX-FP16 in the CPU"]),
    ({"machine_seconds": 5.0, "sampler_threads": 1}, ["--machine-seconds 5: no effect without several machines"]),
]


@pytest.mark.parametrize(("options", "said"), CASES, ids=range(len(CASES)))
def test_options_without_effect_on_the_cpu(options, said, caplog):
    caplog.set_level("INFO")
    say_what_has_no_effect(RunSpec(device="cpu", **options), on_machines=False)
    assert caplog.messages == said


def test_options_without_effect_on_a_gpu_or_on_several_machines(monkeypatch, caplog):
    caplog.set_level("INFO")
    monkeypatch.setattr("cohort_gnn.launch.options.effects.resolve_device", lambda _: "cuda")
    say_what_has_no_effect(RunSpec(topology="host", sampler_threads=2, reuse=False, ahead=3), on_machines=True)
    assert caplog.messages == ["--sampler-threads 2: no effect without --device cpu"]


def test_options_of_benchmarks_without_effect_on_the_cpu(caplog):
    caplog.set_level("INFO")
    say_what_has_no_effect(FETCH_OPTIONS(device="cpu"))
    say_what_has_no_effect(FETCH_OPTIONS(device="cpu", fetch_sms=[8, 32], reuse=True))
    say_what_has_no_effect(SamplerSpec(device="cpu", order="asis"))
    assert caplog.messages == [
        "--reuse, --fetch-sms 8,32: no effect without a GPU",
        "--order asis: no effect without a GPU",
    ]


def test_every_need_has_a_text():
    assert list(TEXTS) == list(Needs)
