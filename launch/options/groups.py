"""Options that several commands have, in the groups of their help."""

import argparse
import re
from pathlib import Path

from cohort.launch.options.arguments import (
    above_zero,
    add_device_option,
    fanout,
    gpus,
    group,
    not_negative,
    positive,
    probability,
    sampler_sms,
    seed,
    slots,
)
from cohort.launch.options.cache import add_cache_options, add_row_options
from cohort.launch.options.partition import add_partition_option

GROUPS = ("Model", "Training", "Sampling", "Cache", "Devices", "Output", "Experts")  # in the order of the help


def add_train_options(parser: argparse.ArgumentParser) -> None:
    """The data set, and all options of a command that trains on it."""
    for title in GROUPS:
        group(parser, title)
    _add_model_options(group(parser, "Model"))
    _add_training_options(group(parser, "Training"))
    _add_output_options(group(parser, "Output"))
    add_data_options(parser)
    group(parser, "Sampling").add_argument(
        "--eval-fanout", type=fanout, help="neighbours per hop in validation and test (default: those of --fanout)"
    )
    group(parser, "Devices").add_argument(
        "--sampler-sms",
        type=sampler_sms,
        metavar="N|auto",
        help="GPU: give the sampler the first N SMs and the trainer the others; auto tries what is fastest (default:"
        " both share all of them)",
    )
    _add_expert_options(parser)


def _add_model_options(parser) -> None:
    parser.add_argument(
        "--model",
        choices=["sage", "gcn", "gat"],
        default="sage",
        help="SAGE (mean), GCN, or GAT (4 heads); it has one layer per entry of --fanout (default sage)",
    )
    parser.add_argument("--hidden", type=positive, default=256, help="features of each hidden layer (default 256)")
    parser.add_argument(
        "--dropout",
        type=probability,
        default=0.5,
        help="probability with which training leaves out a hidden feature (default 0.5)",
    )
    parser.add_argument(
        "--edge-weights", action="store_true", help="GCN weighs each edge by the weight that the data set has of it"
    )
    parser.add_argument(
        "--layers",
        choices=["cohort", "pyg"],
        default="cohort",
        help="implementation of the layers: Cohort's fused ones or PyG's (default cohort)",
    )


def _add_training_options(parser) -> None:
    parser.add_argument("--epochs", type=positive, default=10, help="passes over the training nodes (default 10)")
    parser.add_argument("--lr", type=above_zero, default=0.003, help="learning rate of Adam (default 0.003)")
    parser.add_argument("--weight-decay", type=not_negative, default=0.0, help="weight decay of Adam (default 0)")
    parser.add_argument(
        "--amp", action="store_true", help="train and evaluate in bfloat16 where that is safe (autocast)"
    )
    add_partition_option(parser, "each clique of GPUs trains on the seeds of its own part, and caches for them")


def _add_output_options(parser) -> None:
    parser.add_argument("--out", type=Path, metavar="RUN", help="folder for results and logs (default runs/NAME-TIME)")
    parser.add_argument("--config", type=Path, help="a TOML file of these options (batch-size = 1024); arguments win")
    parser.add_argument("--quiet", action="store_true", help="no progress bar and no table")
    parser.add_argument("--tensorboard", action="store_true", help="write scalars of each epoch to RUN/tensorboard")
    parser.add_argument(
        "--prometheus",
        type=Path,
        metavar="FILE",
        help="keep a .prom file for Prometheus's node exporter up to date",
    )
    parser.add_argument(
        "--profile",
        action="store_true",
        help="write trace.json, for Perfetto: both programs in the first two epochs; takes time itself",
    )


def _add_expert_options(parser: argparse.ArgumentParser) -> None:
    add_precision_option(parser)
    experts = group(parser, "Experts")
    experts.add_argument(
        "--cuda-graphs",
        choices=["on", "off"],
        default="on",
        help="on (default): steps on GPUs are captured once and replayed, at a fraction of the host's time",
    )
    experts.add_argument(
        "--in-place",
        choices=["on", "off"],
        default="on",
        help="on (default): SAGE and GCN read float32 features where they are, without a copy of a batch's rows, on a"
        " GPU whose cache has room for all of them raw (and that has the topology), and on the CPU",
    )


def add_precision_option(parser: argparse.ArgumentParser) -> None:
    """--matmul-precision."""
    group(parser, "Experts").add_argument(
        "--matmul-precision",
        choices=["highest", "high"],
        default="highest",
        help="GPU: precision of float32 products; high: tensor cores round their factors to TF32's 10 bits (default"
        " highest)",
    )


def add_data_options(parser: argparse.ArgumentParser) -> None:
    """Options of every command that runs a sampler."""
    add_batch_options(parser)
    group(parser, "Sampling").add_argument(
        "--seed",
        type=seed,
        default=0,
        help="seed of all random numbers; the same seed gives the same batches (default 0)",
    )
    add_row_options(group(parser, "Cache"))
    add_cache_options(parser, without="no cache")
    devices = group(parser, "Devices")
    add_device_option(devices)
    devices.add_argument(
        "--gpus", "--gpu", type=gpus, help="numbers of the visible GPUs to use, a trainer on each (default 0): 0,1"
    )
    devices.add_argument(
        "--ranks",
        type=positive,
        help="number of trainers on the CPU (default 1); on GPUs there is one for each of --gpus",
    )
    devices.add_argument(
        "--no-mps", action="store_true", help="let sampler and trainer take turns on the GPU instead of sharing it"
    )
    experts = group(parser, "Experts")
    experts.add_argument(
        "--order",
        choices=["address", "asis"],
        default="address",
        help="how a GPU reads the rows of a batch that are in host memory (default: by ascending address)",
    )
    experts.add_argument(
        "--fetch-sms", type=positive, help="GPU: number of SMs that fetch rows (default: the sampler's choice)"
    )
    for name in ("poison-slots", "slow-fetch-us", "illegal-access-batch"):  # for tests of Cohort itself
        kind = {"action": "store_true"} if name == "poison-slots" else {"type": int}
        parser.add_argument(f"--debug-{name}", help=argparse.SUPPRESS, **kind)


def add_batch_options(parser: argparse.ArgumentParser) -> None:
    """The data set, and what a batch of it is."""
    parser.usage = parser.usage or "%(prog)s DIR [options]"
    parser._negative_number_matcher = re.compile(r"-\.?\d[\d.,e-]*$")  # "--fanout -1,-1" gives a value, not an option
    parser.add_argument("dataset", type=Path, metavar="DIR", help="folder of a data set")
    sampling = group(parser, "Sampling")
    sampling.add_argument(
        "--fanout",
        type=fanout,
        default=[25, 10],
        help="neighbours per hop, nearest to the seeds first; the model has one layer per entry; -1: all neighbours"
        " (default 25,10)",
    )
    sampling.add_argument(
        "--batch-size", type=positive, default=1024, help="seeds in a batch of each trainer (default 1024)"
    )
    sampling.add_argument(
        "--slots", type=slots, default=4, help="number of batches that the shared buffer holds (default 4)"
    )
