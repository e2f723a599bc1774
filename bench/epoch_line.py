"""One line about a run: ``python bench/epoch_line.py RUN/summary.json``: medians over its epochs but the first."""

import json
import statistics
import sys


def line(summary: dict) -> str:
    """Epoch, wait, train, sample and fetch seconds, how far wait + train is from the epoch, and the size of a batch."""
    epochs = summary["epochs"][1:] or summary["epochs"]
    median = {
        key: statistics.median(epoch[key] for epoch in epochs)
        for key in ("seconds", "wait_seconds", "train_seconds", "sample_seconds", "fetch_seconds")
    }
    off = max(abs(e["wait_seconds"] + e["train_seconds"] - e["seconds"]) / e["seconds"] for e in epochs)
    batches = epochs[0]["num_batches"]
    gb_per_s = epochs[0]["host_bytes"] / median["fetch_seconds"] / 1e9
    return (
        f"epoch {median['seconds']:.3f} s = wait {median['wait_seconds']:.3f} + train {median['train_seconds']:.3f}"
        f" (off {100 * off:.1f} %), sample {median['sample_seconds']:.3f}, fetch {median['fetch_seconds']:.3f}"
        f" ({gb_per_s:.1f} GB/s), {batches} batches of {epochs[0]['num_edges'] / batches / 1e6:.2f} M edges,"
        f" {epochs[0]['num_nodes'] / batches / 1e6:.2f} M nodes"
    )


if __name__ == "__main__":
    with open(sys.argv[1]) as file:
        print(line(json.load(file)))
