"""What the cache was expected to do, beside what it did: batches of training, by rank."""

import json
from pathlib import Path

from cohort_gnn.spec.results import TIERS, EpochReport, add_tiers


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


class ReadsByRank:
    """What the batches of a run have read; those of the first epoch count until there is another.

    Before the first batches there are no rows of earlier ones.
    """

    def __init__(self):
        self._num_epochs = 0
        self._totals: list[EpochReport] = []

    def add(self, epoch: EpochReport) -> None:
        """Counts an epoch that is done."""
        reads = epoch.ranks or [vars(epoch)]
        self._num_epochs += 1
        if self._num_epochs <= 2:
            self._totals = [EpochReport(0) for _ in reads]
        for total, own in zip(self._totals, reads, strict=True):
            total.num_batches += own["num_batches"]
            add_tiers(total.row_tiers, own["row_tiers"])
            add_tiers(total.list_tiers, own["list_tiers"])

    def shares(self) -> list[dict]:
        """As predicted(), and `gb_per_s`: {tier: stored bytes over the time of the reads}."""
        return [
            _shares(total.row_tiers, "hit_rate", "bytes", "rows", max(1, total.num_batches))
            | {"gb_per_s": {tier: _rate(read) for tier, read in total.row_tiers.items()}}
            | _shares(total.list_tiers, "list_hit_rate", "list_bytes", "lists", max(1, total.num_batches))
            for total in self._totals
        ]


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
