"""Imports of arrays in .npy files, in files of safetensors and in files of torch.save."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from compare import edges_unlike, unlike
from frames import Kinds
from layout_writers import write_safetensors

from cohort_gnn.dataset import open as open_dataset

INTEGERS = ("int64", "int64", "int32", "int16", "uint8", "uint32", "uint64")
FLOATS = ("float32", "float32", "float64", "float16", "bfloat16")


def tensors(making: Any) -> Any:
    """Edges with features, and with labels, splits and something beside the edges, each in a file or all in one."""
    draw, kinds = making.draw, making.kinds
    num_nodes, num_edges = max(2, kinds.count(3000)), max(1, kinds.count(3000))
    ends = np.array([[draw.randrange(min(num_nodes, 120)) for _ in range(num_edges)] for _ in range(2)])
    files = _Files(making)
    pairs = draw.random() < 0.4 and num_edges > 2
    source = files.add("edges", torch.from_numpy(ends.T.copy() if pairs else ends), _type(draw, INTEGERS))
    rows, wanted = _rows(draw, kinds, num_nodes)
    options: list[Any] = ["--features", files.add("x", rows)]
    labels = np.array([draw.randint(-1, 5) for _ in range(num_nodes)])
    options += [
        "--labels",
        files.add("y", torch.from_numpy(labels), _type(draw, ("int64", "int32", "float32", "int8"))),
    ]
    parts = np.split(np.array(draw.sample(range(num_nodes), num_nodes)), [num_nodes // 2, 3 * num_nodes // 4])
    parts = [np.sort(part[labels[part] >= 0]) for part in parts]
    splits = [_split(draw, part, num_nodes) for part in parts]
    options += ["--splits", *(files.add(name, one) for name, one in zip(("train", "val", "test"), splits, strict=True))]
    what, beside, values = _beside(draw, kinds, num_edges)
    options += [f"--edge-{what}", files.add("beside", beside)] if what else []
    argv = files.write()

    def wrong(folder: Path) -> str:
        if wanted is None or what and values is None:
            return "numbers that their type does not hold were taken\n"
        data = open_dataset(folder)
        said = unlike("x", data.x_float32(), wanted) + unlike("y", np.asarray(data.y), labels)
        for name, ids, part in zip(
            ("train", "val", "test"), (data.train_ids, data.val_ids, data.test_ids), parts, strict=True
        ):
            said += unlike(name, np.sort(ids), part)
        kept = {"weights": data.edge_weights, "times": data.edge_times}.get(what)
        if what == "features":
            kept = data.edge_table.x_float32()
        return said + edges_unlike(data, *ends.tolist(), values, kept)

    return making.case(argv(source), wrong, *(argv(option) for option in options))


def _type(draw: random.Random, names: Sequence[str]) -> torch.dtype:
    return getattr(torch, draw.choice(names))


def _rows(draw: random.Random, kinds: Kinds, count: int) -> tuple[torch.Tensor, np.ndarray | None]:
    """Feature rows, and what they are in the data set; None: they have to be refused."""
    width = draw.choice((1, 2, 5))
    if draw.random() < 0.5:
        odd = () if kinds.plain else ("uint16", "bool")
        return _integers(draw, kinds, (count, width), (*INTEGERS, *odd))
    rows = torch.tensor([[draw.gauss(0, 1) for _ in range(width)] for _ in range(count)], dtype=torch.float64)
    if kinds.some(0.1, "no number"):
        rows[draw.randrange(count), 0] = draw.choice((float("nan"), float("inf")))
        return rows.to(_type(draw, FLOATS)), None
    rows = rows.to(_type(draw, FLOATS))
    return rows, rows.float().numpy()


def _integers(
    draw: random.Random, kinds: Kinds, shape: tuple[int, ...], names: Sequence[str]
) -> tuple[torch.Tensor, np.ndarray | None]:
    type_ = _type(draw, names)
    kinds.traps += ["uint16, which may be bits"] if type_ == torch.uint16 else []
    array = np.array([draw.randint(0, 1 if type_ == torch.bool else 120) for _ in range(int(np.prod(shape)))])
    if type_ in (torch.int64, torch.uint32, torch.uint64) and kinds.some(0.2, "large"):
        array[draw.randrange(len(array))] = draw.choice((2**24 + 1, 2**31 + 1))
    exact = np.float32(array).astype(np.int64)
    fits = (exact == array).all()
    return torch.from_numpy(array.reshape(shape)).to(type_), np.float32(array).reshape(shape) if fits else None


def _beside(draw: random.Random, kinds: Kinds, count: int) -> tuple[str, torch.Tensor, np.ndarray | None]:
    what = draw.choice(("", "weights", "times", "features"))
    if not what:
        return what, torch.empty(0), None
    if what == "times":
        times = np.array([draw.randint(-100, 10**12) for _ in range(count)])
        return what, torch.from_numpy(times), times
    if what == "features":
        return what, *_rows(draw, kinds, count)
    if draw.random() < 0.3:
        weights, values = _integers(draw, kinds, (count,), INTEGERS)
    else:
        weights = torch.tensor([draw.random() for _ in range(count)], dtype=torch.float64).to(_type(draw, FLOATS))
        values = weights.float().numpy()
    return what, weights[:, None] if draw.random() < 0.3 else weights, values


def _split(draw: random.Random, ids: np.ndarray, num_nodes: int) -> torch.Tensor:
    """A mask, or ids in any order."""
    if draw.random() < 0.5:
        return torch.from_numpy(np.isin(np.arange(num_nodes), ids))
    return torch.from_numpy(np.array(draw.sample(ids.tolist(), len(ids)), dtype=draw.choice((np.int64, np.int32))))


class _Files:
    """Tensors on their way into files: all of them in one, or each in its own."""

    def __init__(self, making: Any):
        self._making, self._draw = making, making.draw
        self._tensors: dict[str, torch.Tensor] = {}
        self._together = self._draw.random() < 0.6

    def add(self, name: str, tensor: torch.Tensor, dtype: torch.dtype | None = None) -> str:
        self._tensors[name] = tensor if dtype is None else tensor.to(dtype)
        return f"tensor {name}"

    def write(self) -> Callable[[Any], Any]:
        """Writes the files; returns what puts the place of a tensor in an argument."""
        folder, draw = self._making.folder, self._draw
        places = {}
        if self._together:
            path = folder / f"all.{draw.choice(('pt', 'safetensors'))}"
            self._save(path, self._tensors)
            places = {name: f"{path}:{name}" for name in self._tensors}
        else:
            for name, tensor in self._tensors.items():
                kinds = ("npy", "pt", "safetensors") if tensor.dtype != torch.bfloat16 else ("pt", "safetensors")
                path = folder / f"{name}.{draw.choice(kinds)}"
                named = draw.random() < 0.5 and path.suffix != ".npy"
                self._save(path, {name: tensor}) if named else self._save_one(path, tensor)
                places[name] = f"{path}:{name}" if named else str(path)
        return lambda text: places.get(str(text).removeprefix("tensor "), text)

    def _save(self, path: Path, named: dict[str, torch.Tensor]) -> None:
        if path.suffix == ".safetensors":
            write_safetensors(path, named)
        else:
            content = {name: self._laid_out(tensor) for name, tensor in named.items()}
            is_old = self._draw.random() < 0.2 and not {"uint16", "uint32", "uint64"} & {
                str(tensor.dtype).removeprefix("torch.") for tensor in named.values()
            }  # torch itself does not read these types of the old form
            torch.save(content, path, _use_new_zipfile_serialization=not is_old)
        self._making.written.append(
            f"{path.name}: { {name: (str(t.dtype), list(t.shape)) for name, t in named.items()} }"
        )

    def _save_one(self, path: Path, tensor: torch.Tensor) -> None:
        if path.suffix == ".npy":
            np.save(path, self._laid_out(tensor).numpy())
            self._making.written.append(f"{path.name}: {tensor.dtype} {list(tensor.shape)}")
        elif path.suffix == ".pt":
            torch.save(self._laid_out(tensor), path)
            self._making.written.append(f"{path.name}: {tensor.dtype} {list(tensor.shape)}, alone")
        else:
            self._save(path, {"tensor": tensor})

    def _laid_out(self, tensor: torch.Tensor) -> torch.Tensor:
        """The same numbers, perhaps in another order in memory, or a part of a larger tensor."""
        form = self._draw.choice(("plain", "plain", "columns", "part", "steps"))
        if form == "columns" and tensor.dim() == 2:
            self._making.kinds.traps += ["Fortran order"] if 1 not in tensor.shape else []
            return tensor.t().contiguous().t()
        if form == "part":
            return torch.cat([tensor, tensor[:1]])[: len(tensor)]
        if form == "steps":
            return torch.repeat_interleave(tensor, 2, dim=0)[::2]
        return tensor
