"""Rates of types of GPUs that plans are computed with where no GPU can be asked: the table, and files of users' own."""

from pathlib import Path
from typing import NamedTuple

import msgspec

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.files import write_whole


class Rate(NamedTuple):
    """A number, and where it comes from: "measured: PAGE, TABLE" (pages of docs/), or "data sheet"."""

    value: float
    source: str


class GpuRates(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What one type of GPU gives. Bytes, operations and edges are a second, of one GPU.

    Attributes:
        memory_bytes: that programs can have; context_bytes: of these, what sampler and trainer hold in any case.
        local, peer, host: bytes of random rows from its own memory, from a peer over NVLink, and from host memory.
        host_memory: bytes that all GPUs of a machine together get from its host memory.
        row_sums: bytes of rows that a step sums over edges, and writes.
        product_operations, product_bytes: a product of matrices takes the time of both, the bytes those of its result.
        step_seconds: of a step, beside rows and products.
        edge_head_seconds: of a step of GAT, beside those, for each edge and head.
        sum_seconds: of the gradients of two GPUs, beside their bytes.
        sample_seconds, sample_edge_seconds: of drawing a batch, and for each of its edges.
        fetch_seconds: for which the link from host memory rests between two batches.
        epoch_seconds: from the begin of an epoch to its first step.
        step_source: whose steps the rates of steps are, where another type's: then --step-ms has to say them.
    """

    memory_bytes: Rate
    context_bytes: Rate
    local: Rate
    peer: Rate
    host: Rate
    host_memory: Rate
    row_sums: Rate
    product_operations: Rate
    product_bytes: Rate
    step_seconds: Rate
    edge_head_seconds: Rate
    sum_seconds: Rate
    sample_seconds: Rate
    sample_edge_seconds: Rate
    fetch_seconds: Rate
    epoch_seconds: Rate
    step_source: str = ""

    def all(self) -> dict[str, Rate]:
        """By name."""
        values = ((name, getattr(self, name)) for name in self.__struct_fields__)
        return {name: value for name, value in values if isinstance(value, Rate)}


_KERNELS = "measured: performance/kernels.md"
_EPOCHS = "measured: performance.md"
_PRODUCTS = f"{_KERNELS}, Matrix products (H100)"
_HOST = f"{_EPOCHS}, rows in host memory"
_SAMPLER = f"{_KERNELS}, GPU time of the sampler: 0.94 M edges (H200) and 2.03 M edges (H100)"
_H200 = GpuRates(
    memory_bytes=Rate(141e9, "data sheet"),
    # 4.9 GB were in use where 2.4 GB are counted.
    context_bytes=Rate(2.5e9, "measured: performance/training.md, options (H100)"),
    local=Rate(1500e9, f"{_KERNELS}, from GPU memory"),
    peer=Rate(360e9, f"{_KERNELS}, from a peer over NVLink"),
    host=Rate(51e9, f"{_KERNELS}, from pinned host memory"),
    host_memory=Rate(164e9, "measured: performance/machines.md, 64 cores of a host with four H100"),
    # 1.0 M rows of 512 bytes, and 106,113 that are written, in 225 us.
    row_sums=Rate(2.52e12, f"{_PRODUCTS}, means of the first layer"),
    # 106,113 rows of 256 columns: 155 us at depth 256, 140 at 200, so 0.27 us for each column of depth and 86 beside.
    product_operations=Rate(203e12, f"{_PRODUCTS}, depths 256 and 200"),
    product_bytes=Rate(1.26e12, f"{_PRODUCTS}, depths 256 and 200"),
    # The step of SAGE in place, 1.033 ms, less what the rates above give.
    step_seconds=Rate(0.29e-3, f"{_EPOCHS}, rows in place: the step of SAGE on one GPU"),
    # Steps of GAT with 64 and 256 hidden features, 5.04 and 6.46 ms, less what the rates above give: 0.37 and 0.30 ns.
    edge_head_seconds=Rate(0.34e-9, f"{_KERNELS}, a training step alone: GAT with 64 and 256 hidden features"),
    sum_seconds=Rate(27e-6, f"{_EPOCHS}, rows in place: all-reduce of two GPUs"),
    sample_seconds=Rate(0.237e-3, _SAMPLER),
    sample_edge_seconds=Rate(0.03e-9, _SAMPLER),
    # (epoch - floor - epoch_seconds) / batches: 0.41 ms and 0.38 ms.
    fetch_seconds=Rate(0.4e-3, f"{_EPOCHS}, SAGE with --no-reuse, and two GPUs with rows in host memory"),
    # epoch - floor of SAGE, GCN and GAT: 5.4 to 5.6 ms; of it 24 batches less than a millisecond.
    epoch_seconds=Rate(5e-3, f"{_EPOCHS}, ogbn-products' size: epochs less their floors"),
)
GPU_RATES = {
    "h200": _H200,
    "h100": msgspec.structs.replace(
        _H200,
        memory_bytes=Rate(80e9, "data sheet"),
        # 55.2 GB in a floor of 1.093 s.
        host=Rate(50.5e9, "measured: performance/training.md, rows in host memory"),
    ),
}


def links_of(rates: GpuRates) -> tuple[float, float, float]:
    """GB/s from local, peer and host memory, as the planner of the cache takes them."""
    return rates.local.value / 1e9, rates.peer.value / 1e9, rates.host.value / 1e9


def type_of(gpu_name: str) -> str | None:
    """The entry of GPU_RATES for what a driver calls a GPU ("NVIDIA H100 80GB HBM3"); None: there is none."""
    return next((name for name in GPU_RATES if name.upper() in gpu_name.upper().split()), None)


def rates_named(name: str) -> GpuRates:
    """The rates of a type of GPU, or of a file that ``cohort doctor --save`` wrote.

    Raises:
        CohortError: there is neither; the file is not one of rates.
    """
    if name.lower() in GPU_RATES:
        return GPU_RATES[name.lower()]
    path = Path(name)
    if not path.is_file():
        hint = "--gpus N says how many there are" if name.isdigit() else ""
        raise CohortError("--gpu", f"{', '.join(GPU_RATES)}, or a file of cohort doctor --save", name, hint)
    try:
        return msgspec.json.decode(path.read_bytes(), type=GpuRates)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CohortError(str(path), "rates as cohort doctor --save writes them", str(error)) from None


def save_rates(path: Path, rates: GpuRates) -> None:
    """Writes a file that `rates_named` reads."""
    write_whole(path, msgspec.json.format(msgspec.json.encode(rates), indent=2) + b"\n")
