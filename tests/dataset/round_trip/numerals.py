"""Imports of texts that look like numbers, wherever numbers are read: each is one number, or refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from compare import edges_unlike, unlike
from frames import Column, Frame

from cohort_gnn.dataset import open as open_dataset

if TYPE_CHECKING:
    from cases import Case, Making

HEX = ("0x10", "0X1f", "0x2", "0x0A", "0x01", "0xFFFFFFFFFFFFFFFF")
NAN, INFINITE = float("nan"), float("inf")
# What a text is as an integer and as a float; None: it is refused.
MEANT: dict[str, tuple[int | None, float | None]] = {
    **{text: (int(text), float(text)) for text in ("16", "+16", "016", "-0", "007", "+0", "1", "2", "-1")},
    **{f"{before}16{behind}": (16, 16.0) for before, behind in ((" ", ""), ("", " "), ("  ", "\t"), (" +", ""))},
    **{text: (None, float(text)) for text in ("1e3", "1E3", "1e+00", "1.0", "2.", ".5", "-.5", "+2.5e-1")},
    **{text: (None, NAN) for text in ("nan", "NaN", "NAN", "-nan")},
    **{text: (None, INFINITE) for text in ("inf", "Inf", "Infinity", "+inf")},
    **{text: (None, None) for text in HEX + ("0x", "-0x10", "0b1", "0o7", "1h")},
    **{
        text: (None, None)
        for text in ("1_000", "1,000", "1 000", "\u0663", "\uff11", "\u00a016", "1e", "e1", "+", "- 1")
    },
    **{text: (None, None) for text in ("++1", "+-1", "true", "1d0", "1f", "#1", "None", " ")},
}


def numerals(making: Making) -> Case:
    """A column of such texts, of any role."""
    roles = (_features, _labels, _splits, _ids_of_labels, _edges, _edges, _edges)
    return making.draw.choice(roles)(making)


def _column(making: Making, name: str, count: int, kind: int, most: int = 10**9) -> tuple[Column, np.ndarray | None]:
    """Texts, most of them usual, and what they mean: `kind` 0: int64 of 0 to `most`; 1: float32. None: refused."""
    draw, digits = making.draw, [str(i) for i in range(min(most, 20) + 1)]
    odd = [text for text, meant in MEANT.items() if meant[kind] is not None and abs(meant[kind]) <= most]
    if draw.random() < 0.4:
        odd = [draw.choice(draw.choice((HEX, [text for text in MEANT if text not in odd])))]
    share = draw.choice((0.1, 0.5, 1.0))
    texts = [draw.choice(odd if draw.random() < share else digits) for _ in range(count)]
    meant = [MEANT[text][kind] if text in MEANT else (int, float)[kind](text) for text in texts]
    making.kinds.traps.append("numerals")
    is_refused = any(value is None for value in meant)
    return Column(name, texts, pa.string()), None if is_refused else np.array(meant, (np.int64, np.float32)[kind])


def _options(making: Making, frame: Frame, name: str) -> tuple[Any, list]:
    """A file of the frame, and what is to be said of its lines."""
    file = making.write(frame, name)
    draw = making.draw
    said = ["--separator", file.separator, "--header", "yes" if file.header else "no", "--comment", "none"]
    return file, said if file.is_csv and draw.random() < 0.8 else []


def _only_csv(file: Any, values: np.ndarray | None) -> np.ndarray | None:
    """What has to come out: in Parquet, texts are no numbers."""
    return values if file.is_csv else None


def _features(making: Making) -> Case:
    count = making.kinds.count(40)
    column, values = _column(making, "f", count, 1)
    file, options = _options(making, Frame([column]), "x")
    values = _only_csv(file, None if values is None or not np.isfinite(values).all() else values)
    wanted = None if values is None else values[:, None]

    def wrong(folder: Path) -> str:
        return unlike("x", open_dataset(folder).x_float32(), wanted)

    return making.case(making.ring(count), wrong, "--features", file.path, "--id-column", "none", *options)


def _labels(making: Making) -> Case:
    count, task = making.kinds.count(40), making.draw.choice(("classification", "regression"))
    column, values = _column(making, "label", count, 1, most=30 if task == "classification" else 10**9)
    file, options = _options(making, Frame([column]), "y")
    values = _only_csv(file, None if values is None or np.isinf(values).any() else values)
    if values is not None and task == "classification":
        classes = np.where(np.isnan(values), -1, values)
        values = classes.astype(np.int64) if (classes == np.floor(classes)).all() and (classes >= -1).all() else None

    def wrong(folder: Path) -> str:
        return unlike("y", np.asarray(open_dataset(folder).y), values)

    options += [
        "--features",
        "ones",
        "--labels",
        file.path,
        "--nodes",
        count,
        "--label-type",
        task,
        "--id-column",
        "none",
    ]
    return making.case(making.ring(count), wrong, *options)


def _splits(making: Making) -> Case:
    np.save(making.folder / "y.npy", np.zeros(40, np.int64))
    column, values = _column(making, "node", 3, 0, most=39)
    file, options = _options(making, Frame([column]), "train")
    for name, nodes in (("val", [25, 26]), ("test", [30])):
        np.save(making.folder / f"{name}.npy", nodes)
    values = _only_csv(file, values)
    if values is not None and (len({*values.tolist()}) < len(values) or values.min() < 0):
        values = None

    def wrong(folder: Path) -> str:
        return unlike("train", np.sort(open_dataset(folder).train_ids), None if values is None else np.sort(values))

    options += ["--features", "ones", "--labels", making.folder / "y.npy", "--splits", file.path]
    return making.case(making.ring(40), wrong, *options, making.folder / "val.npy", making.folder / "test.npy")


def _ids_of_labels(making: Making) -> Case:
    count = 40
    column, values = _column(making, "id", making.draw.randint(1, 4), 0, most=39)
    frame = Frame([column, Column("label", list(range(len(column.values))), pa.int64())])
    file, options = _options(making, frame, "y")
    names = file.names(frame, frame.columns)
    values = _only_csv(file, values)
    if values is not None and (len({*values.tolist()}) < len(values) or values.min() < 0):
        values = None
    wanted = np.full(count, -1)
    if values is not None:
        wanted[values] = np.arange(len(values))

    def wrong(folder: Path) -> str:
        return unlike("y", np.asarray(open_dataset(folder).y), None if values is None else wanted)

    options += ["--features", "ones", "--labels", file.path, "--nodes", count]
    return making.case(making.ring(count), wrong, *options, "--id-column", names[0], "--label-columns", names[1])


def _edges(making: Making) -> Case:
    """Ends, weights or times of edges."""
    draw, count = making.draw, making.kinds.count(40)
    what = draw.choice(("", "weights", "times", "features"))
    src, dst = (Column(name, [draw.randrange(40) for _ in range(count)], pa.int64()) for name in ("src", "dst"))
    ends: list[np.ndarray | None] = [np.array(src.values), np.array(dst.values)]
    columns, options, values = [src, dst], ["--features", "ones", "--nodes", 40], None
    if what:
        column, values = _column(making, "w", count, 0 if what == "times" else 1)
        values = None if values is None or not np.isfinite(values).all() else values
        columns.append(column)
    else:
        end = draw.randrange(2)
        columns[end], ends[end] = _column(making, ("src", "dst")[end], count, 0, most=39)
        ends[end] = None if ends[end] is None or ends[end].min() < 0 else ends[end]
    frame = Frame(columns)
    file, said = _options(making, frame, "edges")
    names = file.names(frame, columns)
    is_right = file.is_csv and (values is not None if what else all(end is not None for end in ends))
    if what:
        option = "--edge-feature-columns" if what == "features" else f"--{what[:-1]}-column"
        options += [option, names[2]]
    options += ["--columns", ",".join(names[:2]), *said]
    wanted = values[:, None] if what == "features" and values is not None else values

    def wrong(folder: Path) -> str:
        if not is_right:
            return f"{what or 'ends'}: taken, although a text is no number\n"
        data = open_dataset(folder)
        kept: dict[str, Callable[[], Any]] = {
            "weights": lambda: data.edge_weights,
            "times": lambda: data.edge_times,
            "features": lambda: data.edge_attr,
            "": lambda: None,
        }
        return edges_unlike(data, ends[0], ends[1], wanted, kept[what]())

    return making.case(file.path, wrong, *options)
