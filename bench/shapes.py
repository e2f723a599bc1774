"""Graphs of published sizes, generated: what the scripts of this folder measure on."""

import argparse
import logging
from dataclasses import dataclass, replace
from pathlib import Path

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import generate, open_one_type
from cohort_gnn.dataset.cli_parts import rows_to_draw
from cohort_gnn.launch.data.prepare import encoded_rows_writer
from cohort_gnn.launch.options.parser import add_dataset

LOG = logging.getLogger(__name__)

MODES = {"none": "none", "C": "cache", "M": "host", "C/M": "both"}  # as published: cache, memory -> --compress


@dataclass(frozen=True)
class Shape:
    """A data set's sizes, and the batch size of its runs; without `dim` its rows are drawn from a table."""

    nodes: int
    edges: int
    dim: int | None
    dtype: str
    classes: int
    train_share: float
    batch_size: int

    def scaled(self, scale: float) -> "Shape":
        """A graph of so many times the nodes and edges, and smaller batches for a smaller one."""
        sizes = {name: max(1, round(scale * getattr(self, name))) for name in ("nodes", "edges")}
        return replace(self, **sizes, batch_size=max(1, round(min(1.0, scale) * self.batch_size)))


_PRODUCTS = Shape(2_449_029, 123_718_280, 100, "float32", 47, 0.08, 8192)
SHAPES = {
    "products": _PRODUCTS,
    "reddit": Shape(232_965, 114_615_892, 602, "float32", 41, 0.66, 1024),
    "mag": Shape(121_751_666, 1_297_748_926, 768, "float16", 153, 0.009, 8192),
    "papers100m": Shape(111_059_956, 1_615_685_872, 128, "float32", 172, 0.011, 8000),
    # Scaled up: the graph of products with rows of a small data set.
    "pubmed-su": replace(_PRODUCTS, dim=None, classes=3),
    "citeseer-su": replace(_PRODUCTS, dim=None, classes=6, batch_size=1024),
    "cora-su": replace(_PRODUCTS, dim=None, classes=70, batch_size=512),
}


def add_shape_options(parser: argparse.ArgumentParser, required: bool) -> None:
    """Adds the options that say which graph."""
    parser.add_argument("--shape", choices=SHAPES, required=required, help="a graph of these published sizes")
    parser.add_argument(
        "--rows", type=Path, metavar="FILE.npy|DIR", help="table from which shapes that are scaled up draw their rows"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="factor of nodes and edges (default 1)")
    parser.add_argument(
        "--data", type=Path, default=Path("bench-data"), help="folder in which the graphs are kept (default bench-data)"
    )


def add_data_or_shape(parser: argparse.ArgumentParser) -> None:
    """Adds two ways to say which graph, DIR and --shape; see resolve_data."""
    add_dataset(parser, nargs="?", help="folder of a data set; or --shape")
    add_shape_options(parser, required=False)


def resolve_data(args: argparse.Namespace) -> tuple[Path, int]:
    """(the data set, made if need be; seeds a batch where nobody says how many)"""
    if (args.dataset is None) == (args.shape is None):
        raise CohortError("DIR, --shape", "one of the two", "none" if args.shape is None else "both")
    folder, batch_size = args.dataset, 8192
    if args.shape:
        folder, shape = data_set(args)
        batch_size = shape.batch_size
    return open_one_type(folder).path.absolute(), batch_size


def data_set(args: argparse.Namespace) -> tuple[Path, Shape]:
    """The folder of the graph, written unless it is there, and its sizes."""
    if not 0 < args.scale <= 100:
        raise CohortError("--scale", "above 0, at most 100", str(args.scale))
    shape = SHAPES[args.shape].scaled(args.scale)
    if (shape.dim is None) != (args.rows is not None):
        expected = "a table of rows to draw from" if shape.dim is None else "none: the rows of this shape are Gaussian"
        hint = "import the data set, and give its folder" if shape.dim is None else ""
        raise CohortError(f"--rows, --shape {args.shape}", expected, str(args.rows), hint)
    folder = args.data / (args.shape if args.scale == 1 else f"{args.shape}-{args.scale:g}")
    if not folder.exists():
        args.data.mkdir(parents=True, exist_ok=True)
        _generate(folder, shape, args.rows)
    return folder, shape


def _generate(folder: Path, shape: Shape, rows_file: Path | None) -> None:
    rows, dtype = rows_to_draw(rows_file) if rows_file else (None, shape.dtype)
    LOG.info(f"generating {folder}")
    generate(
        folder,
        kind="powerlaw",
        nodes=shape.nodes,
        edges=shape.edges,
        dim=shape.dim if rows is None else rows.shape[1],
        dtype=dtype,
        classes=shape.classes,
        seed=0,
        split=(shape.train_share, 0.001, 0.001),
        rows=rows,
        write_rows=encoded_rows_writer("auto", 0),
    )
