"""The bad inputs of docs/bad-inputs.md, each made in a folder of good data sets and a run."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from damages import Damage, change, cut, members, poke, remove, save, save_tensors, several, write


class Harmful:
    """Leaves a file when it is unpickled."""

    def __reduce__(self):
        return (exec, ("open('it-ran', 'w').close()",))


PICKLE = pickle.dumps(Harmful(), protocol=2)


def change_byte(name: str, at: int) -> Damage:
    def damage(here: Path) -> None:
        image = bytearray((here / name).read_bytes())
        image[at] ^= 0x10
        (here / name).write_bytes(image)

    return damage


def small_disk(size: str) -> Damage:
    """A disk of its own in the folder `small`; the test unmounts it."""

    def damage(here: Path) -> None:
        (here / "small").mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "none", str(here / "small")]
        mounted = subprocess.run(command, capture_output=True, text=True)
        if mounted.returncode != 0:
            pytest.skip(f"a small tmpfs cannot be mounted: {mounted.stderr.strip()}")

    return damage


def file_of(**names: str) -> Damage:
    """Names of other files in meta.json."""

    def damage(here: Path) -> None:
        files = json.loads((here / "data/meta.json").read_text())["files"]
        members("data/meta.json", files=files | names)(here)

    return damage


def npy(header: bytes, data: bytes) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + data


def nan_offsets(indptr: np.ndarray) -> np.ndarray:
    floats = indptr.astype(np.float32)
    floats[3] = np.nan
    return floats


def misaligned(here: Path) -> None:
    path = here / "data/labels.npy"
    header = b"{'descr': '<i8', 'fortran_order': False, 'shape': (200,), }\n"
    path.write_bytes(npy(header, np.load(path).tobytes()))


def relations_out_of_order(here: Path) -> None:
    edges = json.loads((here / "typed/meta.json").read_text())["edges"]
    edges[1], edges[2] = edges[2], edges[1]
    members("typed/meta.json", edges=edges)(here)


def negative_weights(here: Path) -> None:
    np.save(here / "data/edge_weights.npy", np.full(len(np.load(here / "data/indices.npy")), -1, np.float32))
    file_of(edge_weights="edge_weights.npy")(here)


def node_in_two_splits(here: Path) -> None:
    poke("data/val_ids.npy", 0, np.load(here / "data/train_ids.npy")[0])(here)


def other_checkpoint(edit: Callable[[dict], None]) -> Damage:
    def damage(here: Path) -> None:
        state = torch.load(here / "run/checkpoint.pt", weights_only=True)
        edit(state)
        torch.save(state, here / "run/checkpoint.pt")

    return damage


def open_memory(here: Path) -> None:
    folder = here / "shm" / f"cohort-{os.getuid()}"
    folder.mkdir(parents=True)
    folder.chmod(0o777)


AS_IT_IS = (
    "no such folder",
    "several node types where one is supported",
    "a ratio below 0",
    "a fraction instead of an integer",
    "text instead of a fanout",
    "a split above 1",
    "an unknown model",
    "negatives from an unknown place",
    "too many slots",
)
GZIP = gzip.compress(b"0,1\n" * 1000, mtime=0)
DEEP = '{"num_nodes": ' + "[" * 100000 + "]" * 100000 + "}"
LARGE = b"{'descr': '<i8', 'fortran_order': False, 'shape': (2, 4000000000000), }"
PLANETOID = ("x", "tx", "allx", "y", "ty", "ally", "graph")
GRAPH_YAML = "nodes: {{a: {{count: 3}}, b: {{count: {}}}}}\nedges: [{{type: [a, to, b], file: e.npy{}}}]\n"
NUMBERS = {"sampler": {"dataset": "data", "channel": ".", "num_ranks": 4294967298}}
PICKLED_CHECKPOINT = {"format": "cohort checkpoint", "version": 1, "identity": Harmful()}

# What makes each, by the name that the page has for it.
BAD: dict[str, Damage] = {
    **dict.fromkeys(AS_IT_IS, lambda here: None),
    # data sets
    "no meta.json": remove("data/meta.json"),
    "meta.json of a newer version": members("data/meta.json", version=9),
    "meta.json that is not JSON": write("data/meta.json", '{"format": "cohort-dataset",'),
    "meta.json nested 100,000 deep": write("data/meta.json", DEEP),
    "a file outside the folder": file_of(labels="../../etc/passwd"),
    "a file is missing": remove("data/labels.npy"),
    "a file that ends early": cut("data/features.npy"),
    "an empty file": write("data/indices.npy", ""),
    "an unsupported dtype": change("data/features.npy", lambda x: x.astype(np.float64)),
    "offsets as floats, with NaN": change("data/indptr.npy", nan_offsets),
    "big-endian numbers": change("data/labels.npy", lambda y: y.astype(">i8")),
    "Fortran order": change("data/features.npy", np.asfortranarray),
    "Python objects in an array": save("data/labels.npy", np.array([Harmful()] * 200, dtype=object)),
    "another shape": change("data/labels.npy", lambda y: y[:-1]),
    "misaligned data": misaligned,
    "relations out of order": relations_out_of_order,
    "a node out of the range of its type": poke("typed/author.writes.paper.indices.npy", 7, 10),
    "decreasing offsets": poke("data/indptr.npy", 7, 0),
    "offsets that do not end at the number of edges": poke("data/indptr.npy", -1, 999),
    "a node out of range": poke("data/indices.npy", 12, 200),
    "a seed out of range": poke("data/train_ids.npy", 0, 12345),
    "a class out of range": poke("data/labels.npy", 5, 3),
    "a node in two splits": node_in_two_splits,
    "a negative weight, to draw edges by": negative_weights,
    "NaN in the features": poke("data/features.npy", (4, 2), np.nan),
    "no read permission": lambda here: (here / "data/features.npy").chmod(0),
    "a damaged encoded row": change_byte("encoded/prepared/features.ibp", 600),
    "encoded rows that end early": cut("encoded/prepared/features.ibp", -100),
    "features changed after they were encoded": poke("encoded/features.npy", (0, 0), 1),
    # imports
    "text among numbers": write("edges.csv", "src,dst\n1,2\n2,three\n"),
    "a line with one field": write("edges.csv", "src,dst\n1\n"),
    "a negative node id": write("edges.csv", "src,dst\n0,1\n-4,2\n"),
    "gzip that ends early": write("edges.csv.gz", GZIP[: len(GZIP) // 2]),
    "a file that is not a zip": write("graph.npz", b"PK\x03\x04 and then nothing"),
    "an array larger than its file": write("edges.npy", npy(LARGE.ljust(117) + b"\n", bytes(64))),
    "text in place of an array": write("edges.npy", "0,1\n1,2\n"),
    "a tab in graph.yaml": write("graph.yaml", "nodes:\n\ta: {count: 3}\n"),
    "a tag of Python in graph.yaml": write(
        "graph.yaml", "nodes: !!python/object/apply:os.system ['touch it-ran']\nedges: []\n"
    ),
    "a text in place of a number in graph.yaml": write("graph.yaml", GRAPH_YAML.format("three", "")),
    "an unknown key in graph.yaml": write("graph.yaml", GRAPH_YAML.format("3", ", weigth: w")),
    "a pickle instead of tensors": write("data.pt", PICKLE),
    "a pickle in a Planetoid folder": several(
        *(write(f"raw/ind.small.{part}", PICKLE) for part in PLANETOID), write("raw/ind.small.test.index", "1\n")
    ),
    "several tensors without a name": several(
        write("few.csv", "src,dst\n0,1\n1,2\n"),
        save_tensors("all.pt", {"x": torch.ones(3, 2), "y": torch.zeros(3)}),
    ),
    "a safetensors file that is cut off": several(
        write("few.csv", "src,dst\n0,1\n1,2\n"),
        write(
            "x.safetensors",
            b"\x3a" + bytes(7) + b'{"x":{"dtype":"F32","shape":[3,2],"data_offsets":[0,24]}} ' + bytes(8),
        ),
    ),
    "a folder in an unknown format": write("pictures/cat.jpg", b"\xff\xd8"),
    "an existing output folder": several(write("edges.csv", "src,dst\n0,1\n1,2\n"), write("out/thesis.txt", "mine")),
    "a full disk": several(write("edges.csv", "src,dst\n" + "0,1\n" * 20000), small_disk("64k")),
    # runs
    "an unknown option in run.toml": write("run.toml", "epoch = 3\n"),
    "an unknown layer in run.toml": write("run.toml", 'layers = "dgl"\n'),
    "run.toml that is not TOML": write("run.toml", "epochs: 3\n"),
    "a file where the run's folder should be": write("results", ""),
    "a run.json without its members": write("run/run.json", "{}"),
    "a run.json that is not JSON": write("run/run.json", '{"trainer": '),
    "results that end early": write("run/summary.json", '{"epochs": ['),
    "a checkpoint of another run": other_checkpoint(lambda state: state["identity"].update(hidden=77)),
    "a checkpoint of another version": other_checkpoint(lambda state: state.update(version=9)),
    "a checkpoint that ends early": cut("run/checkpoint.pt", -500),
    "a pickle instead of a checkpoint": save_tensors("run/checkpoint.pt", PICKLED_CHECKPOINT),
    "weights of another model": save_tensors("run/model.pt", {"weight": torch.ones(3)}),
    "a pickle instead of weights": save_tensors("run/model.pt", {"weight": Harmful()}),
    "damaged results": members("run/summary.json", epochs="many"),
    "numbers out of range in run.json": write("numbers.json", json.dumps(NUMBERS)),
    "too little shared memory": small_disk("224k"),  # room for the channel and the seeds, but for no batch
    "shared memory that other users can access": open_memory,
}


def make_good(here: Path, cohort: Callable) -> None:
    """`data`, `encoded` (with its rows encoded), `typed` (of several node types) and `run`, by the command itself."""
    cohort("dataset", "generate", "data", "--nodes", 200, "--edges", 1000, "--dim", 4, "--classes", 3)
    shutil.copytree(here / "data", here / "encoded")
    cohort("dataset", "prepare", "encoded")
    sizes = ["--nodes", 120, "--edges", 400, "--dim", 4, "--classes", 2]
    cohort("dataset", "generate", "typed", "--kind", "typed", *sizes)
    options = ["--device", "cpu", "--fanout", "3,2", "--batch-size", 50, "--hidden", 8, "--epochs", 1, "--quiet"]
    cohort("train", "data", *options, "--out", "run")
