"""RUN/timeline.json: when the batches of a stretch were sampled, fetched and trained on."""

import json
from pathlib import Path

from cohort.base.files import write_whole
from cohort.trainer.report.step_log import Span, Step

ROWS = ("sample", "fetch", "train")


def rows_of(steps: list[Step]) -> dict[str, list[Span]]:
    """{"sample": spans, "fetch": spans, "train": spans}, each in the order of the steps."""
    spans = {"sample": [step.sample for step in steps], "fetch": [step.fetch for step in steps]}
    spans["train"] = [step.work for step in steps]
    return {name: [span for span in spans[name] if span] for name in ROWS}


def write_timeline(path: Path, epoch: int, ranks: list[dict[str, list[Span]]]) -> None:
    """Writes {"epoch", "ranks": [{"sample": [[begin, end], ...], "fetch", "train"}]}, in seconds from the first begin.

    Args:
        ranks: rows_of each rank's steps.
    """
    start = min(begin for rows in ranks for spans in rows.values() for begin, _ in spans)
    since = [
        {name: [[round(time - start, 6) for time in span] for span in spans] for name, spans in rows.items()}
        for rows in ranks
    ]
    write_whole(path, json.dumps({"epoch": epoch, "ranks": since}) + "\n")
