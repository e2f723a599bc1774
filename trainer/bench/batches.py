"""Takes batches without training on them: the trainer's part of ``cohort bench sample`` and ``bench fetch``."""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.spec.results import TIERS
from cohort_gnn.trainer.loader.source import BatchSource

WARM_UP_BATCHES = 10


def take_batches(source: BatchSource, run: dict, out: Path) -> None:
    """Takes batches, and writes the sampler's figures of each, a JSON line, to ``out``/batches-RANK.jsonl.

    Its member "beside" says what else the sampler did: "nothing" when batches were asked for one at a time, "next" when
    it sampled the next one while it fetched this one, as in a run whose trainer takes no time.

    Args:
        run: run.json; its member "trainer" has "fanout", "batch_size", "num_batches" (that count), "seed",
            "sampler_sms".
    """
    options = run["trainer"]
    source.sampler_sms = options["sampler_sms"]
    data = open_dataset(run["sampler"]["dataset"])
    ids = np.random.default_rng(options["seed"]).permutation(data.train_ids)
    ids, options["fanout"] = data.types.numbered(ids, options["fanout"])
    with open(out / f"batches-{source.rank}.jsonl", "w") as file:
        for beside, batches in (("nothing", _one_at_a_time), ("next", _in_a_row)):
            for numbers in itertools.islice(batches(source, ids, options), WARM_UP_BATCHES, None):
                if numbers["seeds"]:
                    file.write(json.dumps({"beside": beside} | numbers) + "\n")
    source.leave()


def _one_at_a_time(source: BatchSource, ids: np.ndarray, options: dict) -> Iterator[dict]:
    """Numbers of passes of one batch a rank: the sampler has nothing else to do."""
    step_size = options["batch_size"] * source.num_ranks
    num_passes = WARM_UP_BATCHES + options["num_batches"]
    starts = range(0, max(1, len(ids) - step_size + 1), step_size)[:num_passes]
    seed_sets = [source.add_seeds(ids[start : start + step_size]) for start in starts]
    for number in range(num_passes):
        seeds = seed_sets[number % len(seed_sets)]
        asked = source.request(seeds, options["fanout"], options["batch_size"], epoch=number)
        yield from map(_numbers, source.slots(asked))


def _in_a_row(source: BatchSource, ids: np.ndarray, options: dict) -> Iterator[dict]:
    """Numbers of passes over the seeds that make full batches; the next pass is asked for before this one ends."""
    step_size = options["batch_size"] * source.num_ranks
    seeds = source.add_seeds(ids[: max(step_size, len(ids) // step_size * step_size)])
    asked = [source.request(seeds, options["fanout"], options["batch_size"], epoch=0, shuffle=True)]
    left = WARM_UP_BATCHES + options["num_batches"]
    for epoch in itertools.count(1):
        asked.append(source.request(seeds, options["fanout"], options["batch_size"], epoch, shuffle=True))
        which = asked.pop(0)
        yield from map(_numbers, source.slots(which, min(left, which.num_steps)))
        left -= which.num_steps
        if left <= 0:
            return


def _numbers(slot) -> dict:
    """The figures of a slot, which then goes back to the sampler; times in milliseconds."""
    return {
        "seeds": slot.num_seeds,
        "nodes": sum(slot.num_sampled_nodes),
        "edges": sum(slot.num_sampled_edges),
        "sample_ms": slot.sample_us / 1e3,
        "fetch_ms": slot.fetch_us / 1e3,
        "rows": {
            tier: {"reads": rows, "bytes": stored, "ms": 1e3 * seconds}
            for tier, (rows, stored, seconds) in zip(TIERS, slot.row_tiers, strict=True)
        },
        "lists": {
            tier: {"reads": lists, "bytes": read} for tier, (lists, read) in zip(TIERS, slot.list_tiers, strict=True)
        },
    }
