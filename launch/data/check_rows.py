"""What ``cohort dataset check`` finds in the encoded feature rows of a data set."""

import numpy as np

from cohort_gnn import ibp
from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import StoredGraph
from cohort_gnn.dataset.arrays import as_float32
from cohort_gnn.dataset.stored_graph import FeatureTable
from cohort_gnn.launch.data.prepare import BATCH_BYTES
from cohort_gnn.launch.data.stored_rows import StoredRows

CURE = "run cohort dataset prepare on the data set again"


def register(dataset_commands) -> None:
    """Adds the encoded rows to what `check` checks."""
    dataset_commands.choices["check"].set_defaults(problems_of_rows=problems_of_rows)


def problems_of_rows(data: StoredGraph) -> list[CohortError]:
    """The first problem of each file of encoded rows: damage, rows other than the raw ones, NaN or infinity."""
    errors = []
    for table in (*data.feature_tables, *data.edge_tables):
        try:
            _demand_rows(table)
        except CohortError as error:
            errors.append(error)
    return errors


def _demand_rows(table: FeatureTable) -> None:
    if table.encoded_rows is None or table.feature_dtype is None:
        return
    encoded, file = ibp.load(table.encoded_rows), table.encoded_rows  # raises on damage
    kind, wanted = [*encoded.shape, encoded.profile.dtype], [table.num_rows, table.feature_dim, table.feature_dtype]
    if kind != wanted:
        expected, actual = (f"{dtype} [{num_rows}, {dim}]" for num_rows, dim, dtype in (wanted, kind))
        raise CohortError(str(file), expected, actual, CURE)
    rows, raw = StoredRows(table, encoded), None if table.x is None else StoredRows(table)
    step = max(BATCH_BYTES // rows.row_bytes, 1)
    for first in range(0, rows.num_rows, step):
        batch = rows.slice(first, min(first + step, rows.num_rows))
        if raw is not None:  # whose numbers the check of the other arrays has seen
            differs = (batch != raw.slice(first, first + len(batch))).any(1)
            if differs.any():
                place = f"{file}: row {first + int(differs.argmax())}"
                raise CohortError(place, f"the row of {table.file}", "another row", CURE)
            continue
        typed = batch.view("uint16" if rows.dtype == "bfloat16" else rows.dtype)
        bad = ~np.isfinite(as_float32(typed, rows.dtype))
        if bad.any():
            row, column = map(int, np.unravel_index(bad.argmax(), bad.shape))
            is_nan = np.isnan(as_float32(typed[row, column : column + 1], rows.dtype)[0])
            hint = "encode rows of finite numbers"
            place = f"{file}[{first + row}, {column}]"
            raise CohortError(place, "a finite number", "NaN" if is_nan else "Inf", hint)
