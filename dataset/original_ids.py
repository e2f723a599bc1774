"""The ids that the nodes of a data set had in its source."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset.reader import open as open_dataset

if TYPE_CHECKING:
    import pyarrow as pa

RENAMED = "id_of_node.npy"  # int64 [V], of imports that number integers of any size
WRITTEN_AT_ONCE = 1 << 20  # ids
FILE = "id_of_node.arrow"  # a column "id" of integers or texts, of imports whose tables have a column of ids


def write_ids(path: Path, blocks: Iterator[pa.Array]) -> None:
    """Writes the ids of nodes, int64 or texts, in the order of the nodes. The blocks do not show in the file."""
    import pyarrow as pa

    first = next(blocks)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, pa.schema([("id", first.type)])) as writer:
        waiting: list[pa.Array] = []
        for ids in itertools.chain([first], blocks):
            waiting.append(ids)
            while sum(map(len, waiting)) >= WRITTEN_AT_ONCE:
                whole = pa.concat_arrays(waiting)
                writer.write_batch(pa.record_batch([whole.slice(0, WRITTEN_AT_ONCE)], ["id"]))
                waiting = [whole.slice(WRITTEN_AT_ONCE)]
        writer.write_batch(pa.record_batch([pa.concat_arrays(waiting)], ["id"]))


def original_ids(dataset: str | os.PathLike, node_type: str | None = None) -> pa.Array | None:
    """The ids that nodes had in the tables of the import, int64 or texts [V]; None: nodes were numbered from 0, or the
    ids were not kept (``--no-ids``).

    Args:
        dataset: folder of a data set.
        node_type: of several; default: the target type.

    Raises:
        CohortError: there is no such node type, or the file is damaged.

    Example:
        >>> original_ids("data/payments", "user")[0].as_py()
        'u17'
    """
    data = open_dataset(dataset)
    name = data.target if node_type is None else node_type
    if name not in data.node_types:
        raise CohortError("node_type", f"one of {', '.join(data.node_types)}", name)
    prefix = f"{data.key_of(name)}." if data.key_of(name) else ""
    renamed, path = data.path / f"{prefix}{RENAMED}", data.path / f"{prefix}{FILE}"
    if not renamed.exists() and not path.exists():
        return None
    import pyarrow as pa

    if renamed.exists():
        return pa.array(np.load(renamed))
    count = data.node_types[name].num_nodes
    try:
        with pa.memory_map(str(path)) as file, pa.ipc.open_file(file) as reader:
            ids = reader.read_all()["id"].combine_chunks()
    except (pa.ArrowException, OSError, KeyError) as error:
        raise CohortError(str(path), "the ids of nodes", "a damaged file", "import the data set again") from error
    if len(ids) != count:
        raise CohortError(str(path), f"{count} ids, one per node", f"{len(ids)}", "import the data set again")
    return ids
