"""The bad inputs of docs/bad-inputs.md that are imported."""

from __future__ import annotations

import gzip
import pickle
from pathlib import Path

from bad_inputs import Harmful, bad, small_disk


@bad("text among numbers")
def _text(here: Path) -> None:
    (here / "edges.csv").write_text("src,dst\n1,2\n2,three\n")


@bad("a line with one field")
def _one_field(here: Path) -> None:
    (here / "edges.csv").write_text("src,dst\n1\n")


@bad("a negative node id")
def _below(here: Path) -> None:
    (here / "edges.csv").write_text("src,dst\n0,1\n-4,2\n")


@bad("gzip that ends early")
def _gzip(here: Path) -> None:
    data = gzip.compress(b"0,1\n" * 1000, mtime=0)
    (here / "edges.csv.gz").write_bytes(data[: len(data) // 2])


@bad("a file that is not a zip")
def _no_zip(here: Path) -> None:
    (here / "graph.npz").write_bytes(b"PK\x03\x04 and then nothing")


@bad("an array larger than its file")
def _larger(here: Path) -> None:
    header = b"{'descr': '<i8', 'fortran_order': False, 'shape': (2, 4000000000000), }"
    header += b" " * ((-len(header) - 11) % 64) + b"\n"
    (here / "edges.npy").write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(64))


@bad("text in place of an array")
def _text_array(here: Path) -> None:
    (here / "edges.npy").write_text("0,1\n1,2\n")


@bad("a tab in graph.yaml")
def _tab(here: Path) -> None:
    (here / "graph.yaml").write_text("nodes:\n\ta: {count: 3}\n")


@bad("a tag of Python in graph.yaml")
def _tag(here: Path) -> None:
    (here / "graph.yaml").write_text("nodes: !!python/object/apply:os.system ['touch it-ran']\nedges: []\n")


@bad("a text in place of a number in graph.yaml")
def _text_count(here: Path) -> None:
    text = "nodes: {a: {count: 3}, b: {count: three}}\nedges: [{type: [a, to, b], file: e.npy}]\n"
    (here / "graph.yaml").write_text(text)


@bad("an unknown key in graph.yaml")
def _unknown_key(here: Path) -> None:
    text = "nodes: {a: {count: 3}}\nedges: [{type: [a, to, a], file: e.npy, weigth: w}]\n"
    (here / "graph.yaml").write_text(text)


@bad("a pickle instead of tensors")
def _pickle(here: Path) -> None:
    (here / "data.pt").write_bytes(pickle.dumps(Harmful(), protocol=2))


@bad("a pickle in a Planetoid folder")
def _planetoid(here: Path) -> None:
    (here / "raw").mkdir()
    for part in ("x", "tx", "allx", "y", "ty", "ally", "graph"):
        (here / f"raw/ind.small.{part}").write_bytes(pickle.dumps(Harmful(), protocol=2))
    (here / "raw/ind.small.test.index").write_text("1\n")


@bad("a folder in an unknown format")
def _unknown(here: Path) -> None:
    (here / "pictures").mkdir()
    (here / "pictures/cat.jpg").write_bytes(b"\xff\xd8")


@bad("an existing output folder")
def _there(here: Path) -> None:
    (here / "edges.csv").write_text("src,dst\n0,1\n1,2\n")
    (here / "out").mkdir()
    (here / "out/thesis.txt").write_text("mine")


@bad("a full disk")
def _full(here: Path) -> None:
    (here / "edges.csv").write_text("src,dst\n" + "0,1\n" * 20000)
    small_disk(here / "small")
