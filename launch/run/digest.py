"""``cohort digest``: one hex digest a batch over n_id, edge_index, x and y: the proof that two devices agree."""

import argparse
import tempfile
from pathlib import Path

from cohort.launch.options.arguments import positive
from cohort.launch.options.groups import add_data_options
from cohort.launch.run.programs import run_programs
from cohort.launch.run.train import open_dataset, sampler_options


def register(commands) -> None:
    """Adds the command."""
    columns = "A line is: epoch:step, nodes, edges, digest."
    parser = commands.add_parser("digest", help="print a digest of each batch", description=f"{__doc__} {columns}")
    add_data_options(parser)
    parser.add_argument("--batches", type=positive, default=10, help="number of batches (default 10)")
    parser.set_defaults(func=digest)


def digest(args: argparse.Namespace) -> int:
    """Prints "epoch:step nodes edges digest", a line a batch of shuffled training seeds: the same for any --ranks."""
    _, dataset = open_dataset(args.dataset)
    run = {
        "mps": not args.no_mps,
        "sampler": sampler_options(args, dataset),
        "trainer": {
            "task": "digest",
            "fanout": args.fanout,
            "batch_size": args.batch_size,
            "num_batches": args.batches,
        },
    }
    with tempfile.TemporaryDirectory(prefix="cohort-digest-") as out:
        return run_programs(Path(out), run, show_output=True, is_kept=False)
