"""What happens to a graph on its way into a data set."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.spelling import did_you_mean
from cohort_gnn.dataset.importing.edge_data import block_bytes_of
from cohort_gnn.spec.graph import EdgeType
from cohort_gnn.spec.types import SIMPLE, Bytes, checked

SELF_LOOPS = ("keep", "remove", "add")


@dataclass(frozen=True)
class ConvertOptions:
    """Options as of `cohort dataset import`, whose help describes them; None: as the other library does.

    Attributes:
        memory: bytes for sorting and for pieces of files, beside the interpreter and about 40 bytes a node.
        reverse: --reverse-edges.
        reverse_of: of several types, {relation: the one that it is the reverse of; None: none}.
        node_ids: int64 [V], the id of each row, when ids are any integers.
        row_normalize: before `pca`.
        ids: keep the ids that nodes have in the source, in a file of the data set.
        columns_from: a data set whose columns were declared likewise: its means, deviations, categories and classes are
            taken.
        split: parts of the labelled nodes; unused when the source has splits.
    """

    memory: Bytes = 4_000_000_000
    transpose: bool = False
    reverse: bool | None = None
    reverse_of: Mapping[EdgeType, EdgeType | None] | None = None
    undirected: bool = False
    dedupe: bool | None = None
    self_loops: str | None = None
    rename: bool = False
    node_ids: np.ndarray | None = None
    pca: int | None = None
    row_normalize: bool = False
    ids: bool = True
    columns_from: str | os.PathLike | None = None
    task: str = "classification"
    split: Sequence[float] = (0.6, 0.2, 0.2)
    seed: int = 0
    overwrite: bool = False

    @classmethod
    def named(cls, options: Mapping[str, Any]) -> ConvertOptions:
        """Those that somebody has named as arguments.

        Raises:
            TypeError: there is none of a name.
        """
        names = [field.name for field in fields(cls)]
        for name in options.keys() - set(names):
            hint = did_you_mean(name, names) or f"there are {', '.join(names)}"
            raise TypeError(f"unexpected keyword argument {name!r}; {hint}")
        return cls(**options)

    def __post_init__(self):
        for field in fields(self):
            if field.type in SIMPLE:
                value = checked(field.name, getattr(self, field.name), SIMPLE[field.type])
                object.__setattr__(self, field.name, value)
        if self.self_loops not in (None, *SELF_LOOPS):
            raise CohortError("self_loops", f"{', '.join(SELF_LOOPS)}, or None", repr(self.self_loops))
        for name, value in (("--no-dedupe", self.dedupe), ("--no-reverse-edges", self.reverse)):
            if self.undirected and value is False:
                hint = "--undirected makes every edge come in both directions, once; --reverse-edges keeps equal ones"
                raise CohortError(f"--undirected, {name}", "one of the two", "both", hint)

    @property
    def block_bytes(self) -> int:
        """Of a file, read at once."""
        return block_bytes_of(self.memory)
