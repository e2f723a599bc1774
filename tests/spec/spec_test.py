"""Options: types, what follows from a field, JSON and back."""

import argparse
import dataclasses
import json
import math
from typing import Literal

import numpy as np
import pytest

from cohort_gnn.base.errors import CohortError
from cohort_gnn.launch.options.parser import add_options, spec_of
from cohort_gnn.spec import types
from cohort_gnn.spec.metrics import MetricNames
from cohort_gnn.spec.options import Affects, names_that_affect, options_of
from cohort_gnn.spec.run import RunSpec, SamplerSpec, TrainerSpec, as_json, from_json


@pytest.mark.parametrize(
    ("text", "of", "value"),
    [
        ("17", types.Positive, 17),
        ("25,-1", types.Fanout, [25, -1]),
        ("0,1", types.Gpus | None, [0, 1]),
        ("0.1,2", types.Ratios | Literal["auto"] | None, [0.1, 2.0]),
        ("auto", types.Ratios | Literal["auto"] | None, "auto"),
        ("20GB,1e3", types.ByteCounts, [20_000_000_000, 1000]),
        ("1,2.5,3", types.ThreeNumbers, (1.0, 2.5, 3.0)),
        ("1e-5", types.AboveZero, 1e-5),
    ],
)
def test_words_become_values(text, of, value):
    assert types.parsed(text, of) == value


@pytest.mark.parametrize(
    ("text", "of", "told"),
    [
        ("0", types.Positive, "an integer of at least 1"),
        ("3000000000", types.Positive, "at most 2,147,483,647"),
        ("1", types.Slots, "an integer from 2 to 64"),
        ("0", types.Dependency, "an integer from 1 to 1,048,576"),
        ("nan", types.AboveZero, "a number above 0"),
        ("inf", types.AtLeastZero, "at most 1,000,000,000"),
        ("1", types.Probability, "a number of at least 0 and below 1"),
        ("5,-2", types.Fanout, "one integer a hop, each -1 (all) or at least 0"),
        ("1,1", types.Gpus, "numbers of GPUs, each once: 0,1"),
        ("1,2", types.ThreeNumbers, "3 of: a number of at least 0"),
        ("none", types.Topology, "auto or gpu or host"),
        ("big", types.Bytes, "bytes such as 20GB, 512MB or 4096"),
    ],
)
def test_what_was_expected_is_said(text, of, told):
    with pytest.raises(ValueError) as error:
        types.parsed(text, of)
    assert str(error.value).startswith(f"expected {told}") and text in str(error.value)


def test_values_of_python_are_checked_as_words_are():
    assert types.checked("a", np.int32(3), types.Positive) == 3
    assert types.checked("a", (np.int64(3), -1), types.Fanout) == [3, -1]
    for value in (True, 1.5, "3", None, 0):
        with pytest.raises(CohortError) as error:
            types.checked("a", value, types.Positive)
        assert (error.value.place, error.value.expected) == ("a", "an integer of at least 1")
    for value in (2**31, np.int64(2**40), 10**400):
        with pytest.raises(CohortError) as error:
            types.checked("a", value, types.Positive | None)
        assert error.value.expected == "at most 2,147,483,647"


@pytest.mark.parametrize(
    ("text", "of", "hint"),
    [
        ("10,-1", types.Fanout, "write it as [10, -1]"),
        ("auroc", MetricNames, "write it as ['auroc']"),
        ("aurok", MetricNames, "did you mean auroc?"),
        ("0.5", types.Probability, "write it as 0.5"),
        ("much", types.Probability, ""),
    ],
)
def test_a_word_of_the_command_line_in_place_of_a_value_has_a_cure(text, of, hint):
    with pytest.raises(CohortError) as error:
        types.checked("a", text, of)
    assert error.value.hint == hint


def test_a_spec_comes_back_from_json():
    spec = TrainerSpec(fanout=[3, -1], cache_ratio=[0.5], patience=None, lr=0.5, num_classes=3, feature_dim=4)
    members = json.loads(json.dumps(as_json(spec)))
    assert from_json(members, TrainerSpec, "run.json") == spec
    for name, value in {"lr": -1, "fanout": "3", "model": "x", "colour": "red"}.items():
        with pytest.raises(CohortError):
            from_json(members | {name: value}, TrainerSpec, "run.json")
    with pytest.raises(CohortError, match="num_classes"):
        from_json({name: value for name, value in members.items() if name != "num_classes"}, TrainerSpec, "run.json")


def parsed(*words) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--config")
    add_options(parser, RunSpec)
    return parser.parse_args(list(words))


def test_the_command_line_wins_over_the_file_over_the_default(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text("amp = true\nreuse = false\nlr = 0.5\nepochs = 7\ncache-ratio = 0.25\n")
    args = parsed("--no-amp", "--lr", "0.1")
    args.config = file
    spec = spec_of(args, RunSpec, hidden=8)
    assert (spec.amp, spec.reuse, spec.lr, spec.epochs, spec.hidden, spec.dropout) == (False, False, 0.1, 7, 8, 0.5)
    assert spec.cache_ratio == [0.25]


def test_one_more_field_is_one_more_option():
    """What a new option takes: a field; the command line, JSON and the identity of a run follow."""
    from cohort_gnn.spec.options import option

    new = option(0.5, "a new thing", Affects.LOSS, group="Training")
    more = dataclasses.make_dataclass("More", [("novelty", types.Probability, new)], bases=(RunSpec,), kw_only=True)
    parser = argparse.ArgumentParser()
    add_options(parser, more)
    spec = spec_of(parser.parse_args(["--novelty", "0.25"]), more)
    assert spec.novelty == as_json(spec)["novelty"] == 0.25
    assert "novelty" in names_that_affect(more, Affects.LOSS)
    assert from_json(as_json(spec), more, "x") == spec


def test_switches_that_change_no_batch_and_no_loss_may_change_when_a_run_goes_on():
    fixed = names_that_affect(RunSpec, Affects.BATCHES | Affects.LOSS)
    assert {"fanout", "batch_size", "seed", "lr", "model", "hidden", "amp", "partition", "eval_fanout"} <= fixed
    free = {each.name for each in options_of(RunSpec)} - fixed
    assert {"slots", "cache_ratio", "cache_bytes", "gpus", "mps", "reuse", "compress", "topology", "quiet"} <= free
    assert {each.name for each in options_of(SamplerSpec)} < {each.name for each in options_of(RunSpec)}
    assert all(math.isfinite(each.default) for each in options_of(RunSpec) if isinstance(each.default, float))
