"""Damage to the files of a folder: each function gives one that does it, to the file of this name in a folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

Damage = Callable[[Path], object]


def remove(name: str) -> Damage:
    return lambda folder: (folder / name).unlink()


def write(name: str, content: str | bytes) -> Damage:
    """Makes a file, and its folder where there is none."""

    def damage(folder: Path) -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)

    return damage


def cut(name: str, end: int = -200) -> Damage:
    """Leaves the bytes before `end`."""
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:end])


def replaced(name: str, old: str, new: str) -> Damage:
    """Puts a text in the place of another that the file has."""

    def damage(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new))

    return damage


def members(name: str, *path: str | int, **values) -> Damage:
    """Sets members of a part of a JSON file; None removes one."""

    def damage(folder: Path) -> None:
        found = part = json.loads((folder / name).read_text())
        for key in path:
            part = part[key]
        for key, value in values.items():
            part[key] = value
            if value is None:
                del part[key]
        (folder / name).write_text(json.dumps(found))

    return damage


def save(name: str, array) -> Damage:
    return lambda folder: np.save(folder / name, array)


def save_tensors(name: str, value) -> Damage:
    return lambda folder: torch.save(value, folder / name)


def change(name: str, edit: Callable[[np.ndarray], np.ndarray | None]) -> Damage:
    """Changes an array by `edit`, in place or to the one that it returns."""

    def damage(folder: Path) -> None:
        array = np.load(folder / name)
        changed = edit(array)
        np.save(folder / name, array if changed is None else changed)

    return damage


def poke(name: str, place, value) -> Damage:
    """Changes an element of an array."""
    return change(name, lambda array: array.__setitem__(place, value))


def several(*damages: Damage) -> Damage:
    """One after the other."""
    return lambda folder: [damage(folder) for damage in damages]
