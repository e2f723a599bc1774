"""``cohort digest``: prints a digest of each batch (n_id, edge_index, x and y), to compare devices."""

import argparse

from cohort_gnn.base.files import scratch_folder
from cohort_gnn.launch.options.effects import say_what_has_no_effect
from cohort_gnn.launch.options.parser import add_dataset, add_options, kind, spec_of
from cohort_gnn.launch.run.job import demand_train_nodes, open_to_train, sampler_members
from cohort_gnn.launch.run.programs import run_programs
from cohort_gnn.spec.run import SamplerSpec
from cohort_gnn.spec.types import Positive


def register(parser) -> None:
    """Adds the arguments of the command."""
    parser.description = f"{__doc__} Each line has epoch:step, nodes, edges and digest."
    add_dataset(parser)
    add_options(parser, SamplerSpec, use_edge_weights=None, partition=None)
    parser.add_argument("--batches", type=kind(Positive), default=10, help="number of batches (default 10)")
    parser.set_defaults(func=digest)


def digest(args: argparse.Namespace) -> int:
    """Prints "epoch:step nodes edges digest", a line per batch of shuffled training seeds: the same for any --ranks."""
    data = open_to_train(args.dataset)
    demand_train_nodes(data)
    spec = spec_of(args, SamplerSpec)
    say_what_has_no_effect(spec)
    trainer = {"task": "digest", "fanout": spec.fanout, "batch_size": spec.batch_size, "num_batches": args.batches}
    run = {"mps": spec.mps, "sampler": sampler_members(spec, data.path), "trainer": trainer}
    with scratch_folder("digest") as out:
        return run_programs(out, run, show_output=True, is_kept=False)
