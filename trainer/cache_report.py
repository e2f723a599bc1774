"""What the cache was expected to do, beside what it did: batches of training, by rank."""

import json
from pathlib import Path

from cohort.trainer.metrics import TIERS, EpochReport, add_tiers, settled


def predicted(sampler: dict) -> list[dict] | None:
    """What the plan of a run expects of a batch, one a rank; None where there is no cache.

    Args:
        sampler: the member "sampler" of run.json; its `plan_file` is the sampler's (see sampler/cache_plan.h).

    Returns:
        [{"hit_rate": {tier: share of the rows}, "bytes": {tier: stored bytes of rows}, "list_hit_rate",
        "list_bytes"}, ...]; None in place of what nobody counted.
    """
    if not sampler.get("cache_bytes"):
        return None
    ranks = json.loads(Path(sampler["plan_file"]).read_text())["ranks"]
    return [
        _shares(rank["features"]["expected"], "hit_rate", "bytes", "reads", batches=1)
        | _shares(rank["topology"]["expected"], "list_hit_rate", "list_bytes", "reads", batches=1)
        for rank in ranks
    ]


def measured(epochs: list[EpochReport]) -> list[dict]:
    """The same of the settled epochs' batches, and `gb_per_s`: {tier: stored bytes over the time of the reads}."""
    epochs = settled(epochs)
    ranks = []
    for rank in range(max((len(epoch.ranks) for epoch in epochs), default=0) or 1):
        total = EpochReport(0)
        for epoch in epochs:
            own = epoch.ranks[rank] if epoch.ranks else vars(epoch)
            total.num_batches += own["num_batches"]
            add_tiers(total.row_tiers, own["row_tiers"])
            add_tiers(total.list_tiers, own["list_tiers"])
        rows, lists, batches = total.row_tiers, total.list_tiers, max(1, total.num_batches)
        ranks.append(
            _shares(rows, "hit_rate", "bytes", "rows", batches)
            | {"gb_per_s": {tier: _rate(rows[tier]) for tier in TIERS}}
            | _shares(lists, "list_hit_rate", "list_bytes", "lists", batches)
        )
    return ranks


def _shares(tiers: dict | None, share_name: str, bytes_name: str, count: str, batches: int) -> dict:
    """Each tier's share of the reads, and its bytes a batch."""
    if tiers is None:
        return {share_name: None, bytes_name: None}
    reads = sum(tiers[tier][count] for tier in TIERS)
    return {
        share_name: {tier: tiers[tier][count] / reads if reads else 0.0 for tier in TIERS},
        bytes_name: {tier: tiers[tier]["bytes"] / batches for tier in TIERS},
    }


def _rate(tier: dict) -> float | None:
    return tier["bytes"] / tier["seconds"] / 1e9 if tier["seconds"] else None
