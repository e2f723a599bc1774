"""How fast `cohort.ibp` is in a script, each part beside what a script does without it.

    PYTHONPATH=build/python python bench/ibp/library.py [bag planes topk stream history store] [--scale 1]

bag      EmbeddingBag over a table in host memory, encoded and raw; rows gathered by the CPU, and sums of the CPU.
planes   rows of codec planes from host memory: plane A alone, both planes, and codec exponent.
topk     the best rows for 64 queries, of a table in host and GPU memory, torch's product of blocks in float32, and
         faiss, if it is installed.
stream   a module whose weights stay in host memory, and a copy of its raw weights.
history  rows pushed from a GPU to host memory and pulled back, and CPU gather and copy.
store    features by PyG's FeatureStore: from encoded rows, and from a tensor in host memory.

Prints a line for each case: the median milliseconds, raw GB/s, and the ratio to the case named last. Rows are Gaussian
numbers, drawn on the device. `--scale` multiplies the numbers of rows; `--device cpu` tries the script.
"""

import argparse
import importlib.util
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F

from cohort_gnn import ibp


class Bench:
    """Times calls, and prints them beside each other."""

    def __init__(self, device: str, scale: float, repeats: int):
        self.device, self.scale, self.repeats = device, scale, repeats
        self.pinned = "pinned" if device == "cuda" else "cpu"

    def rows(self, count: int, columns: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """In host memory."""
        count = max(1000, round(self.scale * count))
        parts = [torch.randn(each, columns, device=self.device, dtype=dtype).cpu() for each in _parts(count, 1 << 20)]
        return torch.cat(parts)

    def milliseconds(self, call: Callable[[], object]) -> float:
        found = []
        for _ in range(self.repeats + 2):  # two to warm up
            self.wait()
            begin = time.perf_counter()
            call()
            self.wait()
            found.append(1e3 * (time.perf_counter() - begin))
        return statistics.median(found[2:])

    def wait(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()

    def lines(self, title: str, raw_bytes: float, cases: dict[str, Callable[[], object]]) -> None:
        """The last case is what the others are compared with."""
        took = {name: self.milliseconds(call) for name, call in cases.items()}
        base = list(took.values())[-1]
        for name, ms in took.items():
            print(f"{title:32} {name:34} {ms:9.3f} ms {raw_bytes / ms / 1e6:8.1f} GB/s {base / ms:6.2f}x", flush=True)


def _parts(count: int, most: int) -> list[int]:
    return [min(most, count - first) for first in range(0, count, most)]


def bag(bench: Bench) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        for row_bytes in (512, 1024, 2048):
            bag_of(bench, dtype, row_bytes)


def bag_of(bench: Bench, dtype: torch.dtype, row_bytes: int) -> None:
    rows = bench.rows((2 << 30) // row_bytes, row_bytes // dtype.itemsize, dtype)
    ids = torch.randint(len(rows), (8192, 32))
    there = ids.to(bench.device)
    encoded, raw = (ibp.EmbeddingBag(ibp.Table(rows, codec, bench.pinned)) for codec in ("auto", "raw"))
    cases = {
        "encoded": lambda: encoded(there),
        "raw": lambda: raw(there),
        "rows to the GPU, summed there": lambda: rows[ids.view(-1)].to(bench.device).view(*ids.shape, -1).mean(1),
        "summed on the CPU, and a copy": lambda: F.embedding_bag(ids, rows, mode="mean").to(bench.device),
    }
    bench.lines(f"bag, {str(dtype)[6:]}, {row_bytes} B", ids.numel() * row_bytes, cases)


def planes(bench: Bench) -> None:
    rows = bench.rows(8 << 20, 128)
    ids = torch.randint(len(rows), (max(1000, round(bench.scale * 1_000_000)),), device=bench.device)
    out = torch.empty(len(ids), 128, device=bench.device)
    profile = ibp.fit(rows, codec="planes", mantissa_bits=3)
    two = ibp.encode(rows, profile).to(bench.pinned)
    one = ibp.encode(rows, ibp.fit(rows, codec="exponent")).to(bench.pinned)
    print(f"planes take {two.stored_bytes / one.stored_bytes:.4f} of the exponent codec's bytes")
    for sms in (8, 16, None):
        cases = {
            "plane A": lambda: ibp.fetch(two, ids, out, max_sms=sms, planes="A"),  # noqa: B023 (called here)
            "both planes": lambda: ibp.fetch(two, ids, out, max_sms=sms),  # noqa: B023
            "exponent": lambda: ibp.fetch(one, ids, out, max_sms=sms),  # noqa: B023
        }
        bench.lines(f"planes, {sms or 'all'} SMs", out.nbytes, cases)


def topk(bench: Bench) -> None:
    rows = bench.rows(8 << 20, 128)
    encoded = ibp.encode(rows, ibp.fit(rows, codec="planes", mantissa_bits=3))
    queries = torch.randn(64, 128, device=bench.device)

    def blocks(k: int) -> torch.Tensor:
        best = torch.full((64, k), -torch.inf, device=bench.device)
        for block in rows.split(1 << 20):
            values = (queries @ block.to(bench.device).T).topk(k).values
            best = torch.cat((best, values), 1).topk(k).values
        return best

    def by_faiss(k: int):
        import faiss

        return faiss.knn(queries.cpu().numpy(), rows.numpy(), k, metric=faiss.METRIC_INNER_PRODUCT)

    has_faiss = importlib.util.find_spec("faiss") is not None
    for place in dict.fromkeys((bench.pinned, bench.device)):
        there = encoded.to(place)
        for k in (10, 100):
            cases = {
                "exact": lambda: ibp.top_k(there, queries, k),  # noqa: B023
                **({"faiss, on the CPU": lambda: by_faiss(k)} if has_faiss else {}),  # noqa: B023
                "blocks of raw rows, float32": lambda: blocks(k),  # noqa: B023
            }
            bench.lines(f"top {k}, {len(rows):,} rows, {place}", rows.nbytes, cases)


def stream(bench: Bench) -> None:
    layers = max(2, round(bench.scale * 24))
    width = 4096 if bench.scale >= 0.1 else 256
    made = [torch.nn.Linear(width, width, bias=False, dtype=torch.bfloat16) for _ in range(layers)]
    model = torch.nn.Sequential(*made).eval()
    raw = [layer.weight.detach().clone() for layer in made]
    if bench.device == "cuda":
        raw = [weight.pin_memory() for weight in raw]
    there = torch.empty_like(raw[0], device=bench.device)
    x = torch.randn(1, width, device=bench.device, dtype=torch.bfloat16)
    ibp.stream_module(model, bench.device)
    with torch.inference_mode():
        cases = {
            "streamed, one input": lambda: model(x),
            "copy of raw weights": lambda: [there.copy_(weight, non_blocking=True) for weight in raw],
        }
        bench.lines(f"stream, bfloat16, {layers} layers", sum(weight.nbytes for weight in raw), cases)


def history(bench: Bench) -> None:
    num_rows, dim = max(1000, round(bench.scale * 2_000_000)), 128
    kept = ibp.History(num_rows, dim, torch.bfloat16, place=bench.pinned, spare=1.0)
    plain = torch.zeros(num_rows, dim, dtype=torch.bfloat16)
    ids = torch.randperm(num_rows, device=bench.device)[: num_rows // 4]
    rows = torch.randn(len(ids), dim, device=bench.device, dtype=torch.bfloat16)
    out = torch.empty_like(rows)
    kept.push(ids, rows)
    pushes = {
        "push": lambda: kept.push(ids, rows),
        "copy and index_copy on the CPU": lambda: plain.index_copy_(0, ids.cpu(), rows.cpu()),
    }
    bench.lines("history, bfloat16 x 128", rows.nbytes, pushes)
    pulls = {
        "pull": lambda: kept.pull(ids, out=out),
        "CPU gather and copy": lambda: plain[ids.cpu()].to(bench.device),
    }
    bench.lines("history, bfloat16 x 128", rows.nbytes, pulls)


def store(bench: Bench) -> None:
    rows = bench.rows(2_449_029, 100)
    ids = torch.randint(len(rows), (max(1000, round(bench.scale * 1_000_000)),))
    table = ibp.Table(rows, place=bench.pinned)
    encoded, plain = ibp.pyg_store({(None, "x"): table}), ibp.pyg_store({(None, "x"): rows})
    there = ids.to(bench.device)
    cases = {
        "encoded": lambda: encoded.get_tensor(group_name=None, attr_name="x", index=there),
        "in memory, and a copy": lambda: plain.get_tensor(group_name=None, attr_name="x", index=ids).to(bench.device),
    }
    bench.lines("store, float32 x 100", ids.numel() * 400, cases)


CASES = {"bag": bag, "planes": planes, "topk": topk, "stream": stream, "history": history, "store": store}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", choices=[*CASES, []], help="default: all")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=["cuda", "cpu"])
    args = parser.parse_args()
    torch.manual_seed(0)
    bench = Bench(args.device, args.scale, args.repeats)
    for name in args.cases or CASES:
        CASES[name](bench)


if __name__ == "__main__":
    main()
