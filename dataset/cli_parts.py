"""What the commands about data sets share."""

from __future__ import annotations

import argparse
import sys
from decimal import Decimal, InvalidOperation

from cohort.base.errors import CohortError

SUFFIXES = {"k": 10**3, "m": 10**6, "g": 10**9, "b": 10**9}


def number(text: str) -> int:
    """ "2.4M", "1e6" or "17" as an integer."""
    scale = SUFFIXES.get(text[-1:].lower(), 1)
    try:
        value = Decimal(text[:-1] if scale > 1 else text) * scale
        whole = int(value)
    except (InvalidOperation, ValueError, OverflowError):
        raise argparse.ArgumentTypeError(f"expected a number such as 17, 2.4M or 1e6, found {text!r}") from None
    if whole != value or not 0 <= whole < 2**63:
        raise argparse.ArgumentTypeError(f"expected a whole number in [0, 2^63), found {text!r}")
    return whole


def parts(text: str) -> tuple[float, ...]:
    """ "0.6,0.2,0.2" as three floats."""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected three parts such as 0.6,0.2,0.2, found {text!r}") from None


def add_common(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--split",
        type=parts,
        default=(0.6, 0.2, 0.2),
        metavar="0.6,0.2,0.2",
        help="shares of the nodes for training, validation and test, at random; default: 0.6,0.2,0.2",
    )
    command.add_argument("--seed", type=number, default=0, help="of all that is random; default: %(default)s")
    command.add_argument("--overwrite", action="store_true", help="replace OUT when it is a data set")


def summary(data) -> str:
    sizes = f"{data.num_nodes:,} nodes, {data.num_edges:,} edges, {data.feature_dim} x {data.feature_dtype}"
    return f"{sizes}, {targets(data)}"


def targets(data) -> str:
    """What there is to learn of a node."""
    told = {"classification": f"{data.num_classes} classes", "multilabel": f"{data.num_classes} labels"}
    return told.get(data.task, "a number a node")


def fail(error: CohortError) -> int:
    print(f"cohort: {error}", file=sys.stderr)
    return 1
