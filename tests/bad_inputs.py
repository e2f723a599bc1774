"""The bad inputs of docs/bad-inputs.md (imports: bad_imports.py), each made in a folder of good data sets and a run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

BAD: dict[str, Callable[[Path], None]] = {}


def bad(name: str):
    """Gives a way to make a bad input the name that the page has for it."""

    def register(make: Callable[[Path], None]) -> Callable[[Path], None]:
        assert name not in BAD
        BAD[name] = make
        return make

    return register


class Harmful:
    """Leaves a file when it is unpickled."""

    def __reduce__(self):
        return (exec, ("open('it-ran', 'w').close()",))


def edit_json(path: Path, **members) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | members))


def poke(path: Path, place: int, value) -> None:
    """Changes an element of an array on disk."""
    array = np.load(path)
    array[place] = value
    np.save(path, array)


def change_byte(path: Path, at: int) -> None:
    image = bytearray(path.read_bytes())
    image[at] ^= 0x10
    path.write_bytes(image)


def small_disk(folder: Path, size: str = "64k") -> None:
    """A disk of its own; the test unmounts it."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "none", str(folder)]
    mounted = subprocess.run(command, capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"a small tmpfs cannot be mounted: {mounted.stderr.strip()}")


# --- data sets --------------------------------------------------------------------------------------------------------


@bad("no such folder")
@bad("several node types where one is supported")
@bad("a ratio below 0")
@bad("a fraction instead of an integer")
@bad("text instead of a fanout")
@bad("a split above 1")
@bad("an unknown model")
@bad("negatives from an unknown place")
@bad("too many slots")
def _as_it_is(here: Path) -> None:
    pass


@bad("no meta.json")
def _no_meta(here: Path) -> None:
    (here / "data/meta.json").unlink()


@bad("meta.json of a newer version")
def _newer(here: Path) -> None:
    edit_json(here / "data/meta.json", version=9)


@bad("meta.json that is not JSON")
def _no_json(here: Path) -> None:
    (here / "data/meta.json").write_text('{"format": "cohort-dataset",')


@bad("meta.json nested 100,000 deep")
def _deep(here: Path) -> None:
    (here / "data/meta.json").write_text('{"num_nodes": ' + "[" * 100000 + "]" * 100000 + "}")


@bad("a file outside the folder")
def _outside(here: Path) -> None:
    files = json.loads((here / "data/meta.json").read_text())["files"]
    edit_json(here / "data/meta.json", files=files | {"labels": "../../etc/passwd"})


@bad("a file is missing")
def _missing(here: Path) -> None:
    (here / "data/labels.npy").unlink()


@bad("a file that ends early")
def _cut(here: Path) -> None:
    path = here / "data/features.npy"
    path.write_bytes(path.read_bytes()[:-200])


@bad("an empty file")
def _empty(here: Path) -> None:
    (here / "data/indices.npy").write_bytes(b"")


@bad("an unsupported dtype")
def _other_type(here: Path) -> None:
    np.save(here / "data/features.npy", np.load(here / "data/features.npy").astype(np.float64))


@bad("offsets as floats, with NaN")
def _nan_offsets(here: Path) -> None:
    indptr = np.load(here / "data/indptr.npy").astype(np.float32)
    indptr[3] = np.nan
    np.save(here / "data/indptr.npy", indptr)


@bad("big-endian numbers")
def _big_endian(here: Path) -> None:
    np.save(here / "data/labels.npy", np.load(here / "data/labels.npy").astype(">i8"))


@bad("Fortran order")
def _fortran(here: Path) -> None:
    np.save(here / "data/features.npy", np.asfortranarray(np.load(here / "data/features.npy")))


@bad("Python objects in an array")
def _objects(here: Path) -> None:
    np.save(here / "data/labels.npy", np.array([Harmful()] * 200, dtype=object), allow_pickle=True)


@bad("another shape")
def _other_shape(here: Path) -> None:
    np.save(here / "data/labels.npy", np.load(here / "data/labels.npy")[:-1])


@bad("misaligned data")
def _odd(here: Path) -> None:
    path = here / "data/labels.npy"
    text = b"{'descr': '<i8', 'fortran_order': False, 'shape': (200,), }\n"
    data = np.load(path).tobytes()
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data)


@bad("relations out of order")
def _relations_out_of_order(here: Path) -> None:
    edges = json.loads((here / "typed/meta.json").read_text())["edges"]
    edges[1], edges[2] = edges[2], edges[1]
    edit_json(here / "typed/meta.json", edges=edges)


@bad("a node out of the range of its type")
def _node_of_another_type(here: Path) -> None:
    poke(here / "typed/author.writes.paper.indices.npy", 7, 10)


@bad("decreasing offsets")
def _down(here: Path) -> None:
    poke(here / "data/indptr.npy", 7, 0)


@bad("offsets that do not end at the number of edges")
def _end(here: Path) -> None:
    poke(here / "data/indptr.npy", -1, 999)


@bad("a node out of range")
def _node(here: Path) -> None:
    poke(here / "data/indices.npy", 12, 200)


@bad("a seed out of range")
def _seed(here: Path) -> None:
    poke(here / "data/train_ids.npy", 0, 12345)


@bad("a class out of range")
def _class(here: Path) -> None:
    poke(here / "data/labels.npy", 5, 3)


@bad("a node in two splits")
def _twice(here: Path) -> None:
    poke(here / "data/val_ids.npy", 0, np.load(here / "data/train_ids.npy")[0])


@bad("a negative weight, to draw edges by")
def _negative_weight(here: Path) -> None:
    files = json.loads((here / "data/meta.json").read_text())["files"]
    np.save(here / "data/edge_weights.npy", np.full(len(np.load(here / "data/indices.npy")), -1, np.float32))
    edit_json(here / "data/meta.json", files=files | {"edge_weights": "edge_weights.npy"})


@bad("NaN in the features")
def _nan(here: Path) -> None:
    poke(here / "data/features.npy", (4, 2), np.nan)


@bad("no read permission")
def _no_right(here: Path) -> None:
    (here / "data/features.npy").chmod(0)


@bad("a damaged encoded row")
def _damaged_row(here: Path) -> None:
    change_byte(here / "encoded/prepared/features.ibp", 600)


@bad("encoded rows that end early")
def _cut_rows(here: Path) -> None:
    path = here / "encoded/prepared/features.ibp"
    path.write_bytes(path.read_bytes()[:-100])


@bad("features changed after they were encoded")
def _stale(here: Path) -> None:
    poke(here / "encoded/features.npy", (0, 0), 1)


# --- runs -------------------------------------------------------------------------------------------------------------


@bad("an unknown option in run.toml")
def _unknown_option(here: Path) -> None:
    (here / "run.toml").write_text("epoch = 3\n")


@bad("an unknown layer in run.toml")
def _unknown_layer(here: Path) -> None:
    (here / "run.toml").write_text('layers = "dgl"\n')


@bad("run.toml that is not TOML")
def _no_toml(here: Path) -> None:
    (here / "run.toml").write_text("epochs: 3\n")


@bad("a file where the run's folder should be")
def _file(here: Path) -> None:
    (here / "results").write_text("")


@bad("a run.json without its members")
def _no_run(here: Path) -> None:
    (here / "run/run.json").write_text("{}")


@bad("a run.json that is not JSON")
def _cut_run(here: Path) -> None:
    (here / "run/run.json").write_text('{"trainer": ')


@bad("results that end early")
def _cut_results(here: Path) -> None:
    (here / "run/summary.json").write_text('{"epochs": [')


@bad("a checkpoint of another run")
def _other_run(here: Path) -> None:
    state = torch.load(here / "run/checkpoint.pt", weights_only=True)
    state["identity"]["hidden"] = 77
    torch.save(state, here / "run/checkpoint.pt")


@bad("a checkpoint of another version")
def _other_version(here: Path) -> None:
    torch.save(torch.load(here / "run/checkpoint.pt", weights_only=True) | {"version": 9}, here / "run/checkpoint.pt")


@bad("a checkpoint that ends early")
def _cut_checkpoint(here: Path) -> None:
    path = here / "run/checkpoint.pt"
    path.write_bytes(path.read_bytes()[:-500])


@bad("a pickle instead of a checkpoint")
def _pickled_checkpoint(here: Path) -> None:
    torch.save({"format": "cohort checkpoint", "version": 1, "identity": Harmful()}, here / "run/checkpoint.pt")


@bad("weights of another model")
def _other_model(here: Path) -> None:
    torch.save({"weight": torch.ones(3)}, here / "run/model.pt")


@bad("a pickle instead of weights")
def _pickled_weights(here: Path) -> None:
    torch.save({"weight": Harmful()}, here / "run/model.pt")


@bad("damaged results")
def _results(here: Path) -> None:
    edit_json(here / "run/summary.json", epochs="many")


@bad("numbers out of range in run.json")
def _numbers(here: Path) -> None:
    sampler = {"dataset": "data", "channel": ".", "num_ranks": 4294967298}
    (here / "numbers.json").write_text(json.dumps({"sampler": sampler}))


@bad("too little shared memory")
def _small_memory(here: Path) -> None:
    """Room for the channel and the seeds, but for no batch."""
    small_disk(here / "small", "224k")


@bad("shared memory that other users can access")
def _open_memory(here: Path) -> None:
    folder = here / "shm" / f"cohort-{os.getuid()}"
    folder.mkdir(parents=True)
    folder.chmod(0o777)


def make_good(here: Path, cohort: Callable) -> None:
    """`data`, `encoded` (with its rows encoded), `typed` (of several node types) and `run`, by the command itself."""
    cohort("dataset", "generate", "data", "--nodes", 200, "--edges", 1000, "--dim", 4, "--classes", 3)
    shutil.copytree(here / "data", here / "encoded")
    cohort("dataset", "prepare", "encoded")
    sizes = ["--nodes", 120, "--edges", 400, "--dim", 4, "--classes", 2]
    cohort("dataset", "generate", "typed", "--kind", "typed", *sizes)
    options = ["--device", "cpu", "--fanout", "3,2", "--batch-size", 50, "--hidden", 8, "--epochs", 1, "--quiet"]
    cohort("train", "data", *options, "--out", "run")
