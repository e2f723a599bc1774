"""Memory of `cohort predict`: what of a prediction is in a GPU, in host memory and in files."""

import pytest

from cohort_gnn.base.errors import CohortError
from cohort_gnn.trainer.predict.layerwise import LEAST_WORK_BYTES, KeptIn, MemoryPlan, plan_memory


def test_memory_is_shared_out():
    fixed, column = 1000 * 5, 1000 * 4
    tables = [100 * column, 64 * column, 64 * column]
    least = fixed + LEAST_WORK_BYTES
    whole, files = KeptIn.WHOLE, KeptIn.FILES
    plan = plan_memory(10**9, 1000, tables, with_degrees=False)
    assert plan == MemoryPlan((10**9 - fixed) // 4, [whole] * 3)
    plan = plan_memory(least + 164 * column, 1000, tables, with_degrees=False)
    assert plan == MemoryPlan(LEAST_WORK_BYTES, [whole] * 3)
    plan = plan_memory(least + 164 * column - 1, 1000, tables, with_degrees=False)
    assert plan == MemoryPlan(LEAST_WORK_BYTES, [files, whole, whole])
    plan = plan_memory(least + 128 * column - 1, 1000, tables, with_degrees=False)
    assert plan == MemoryPlan(LEAST_WORK_BYTES, [files] * 3, 128 * column)
    assert plan_memory(least + 4000, 1000, [9 * column, 64 * column], with_degrees=True).file_bytes == 64 * column
    assert plan_memory(10**9, 1000, tables[:1], with_degrees=False).kept_in == [whole]
    with pytest.raises(CohortError, match="--memory: expected at least"):
        plan_memory(least + 3999, 1000, [9 * column, 64 * column], with_degrees=True)


def test_a_gpus_memory_is_shared_out():
    """Two thirds of it for tables, hidden layers first; then host memory, then files."""
    column, host = 10**6 * 4, 10**9

    def kept_in(gpu_columns: int, host_bytes: int = host) -> list[str]:
        gpu_bytes = (gpu_columns * column + 5 * 10**6) * 3 // 2 + 2
        tables = [width * column for width in (100, 64, 32)]
        return plan_memory(host_bytes, 10**6, tables, with_degrees=False, gpu_bytes=gpu_bytes).kept_in

    assert kept_in(164) == [KeptIn.WHOLE] * 3
    assert kept_in(163) == [KeptIn.FILES, KeptIn.WHOLE, KeptIn.WHOLE]
    assert kept_in(95) == [KeptIn.FILES, KeptIn.HOST, KeptIn.WHOLE]
    assert kept_in(31) == [KeptIn.FILES, KeptIn.HOST, KeptIn.HOST]
    assert kept_in(31, LEAST_WORK_BYTES) == [KeptIn.FILES] * 3
