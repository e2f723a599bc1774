"""What compression is worth in collectives of training: sizes measured on real payloads, times from a model.

    PYTHONPATH=build/python python bench/ibp/collectives.py --rows vectors.npy [--ranks 8] [--gbits 10,100,200,400]
        [--nvcomp]

Payloads: rows of the file as float32 and, eight beside each other, as bfloat16; the ids of a batch that another rank
has, ascending int64; gradients of a two-layer SAGE model after some steps. Their encoded sizes are measured here.

The model: the bytes that a rank sends, over the rate of its link, and what encodes and decodes them on its GPU, at the
rates of SPEEDS. "after": one thing after the other; "beside": all three at the same time, so that the slowest counts.
In an all-to-all each byte is sent once; in an all-gather each rank's bytes are encoded once, and decoded by all others;
in an all-reduce (ring) sums are sent 2 (n - 1) times, so that a codec encodes and decodes each piece anew.

--nvcomp: beside them nvCOMP's codecs (nvidia-nvcomp-cu13), whose sizes and rates are measured on the current GPU, on
the payload repeated to 64 MiB; all SMs encode and decode.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from cohort_gnn import ibp

# GB/s of raw bytes on an H100 or H200, of docs/performance/kernels.md (16 SMs, as steps need the others): encode,
# decode. Bits that are cut off or laid beside others are a plain gather's work.
STORED, FREE = float("inf"), float("inf")
SPEEDS = {"exponent, float32": (80, 338), "exponent, bfloat16": (80, 169), "cut": (331, 331)}

# nvCOMP's codecs and the types that they take elements as.
NVCOMP = {
    torch.float32: (("ANS", "<f4"), ("Bitcomp", "<f4"), ("Cascaded", "<i4"), ("LZ4", "<i4")),
    torch.bfloat16: (("ANS", "<f2"), ("ANS", "|u1"), ("Bitcomp", "<i2"), ("Cascaded", "<i2"), ("LZ4", "<i2")),
    torch.int64: (("ANS", "|u1"), ("Bitcomp", "<i8"), ("Cascaded", "<i8")),
}
NVCOMP_BYTES, REPEATS = 64 << 20, 5


@dataclass
class Method:
    """Of a payload.

    Attributes:
        share: of the raw bytes that are sent.
        encode, decode: GB/s of raw bytes; infinity: nothing to do, or not counted.
        note: what else to know.
    """

    name: str
    share: float
    encode: float
    decode: float
    note: str = ""


def share_of(rows: torch.Tensor, codec: str = "exponent") -> float:
    """Encoded bytes, relative to raw ones."""
    encoded = ibp.encode(rows, ibp.fit(rows, codec=codec), layout="packed")
    return encoded.stored_bytes / rows.nbytes


def mpc_share(rows: np.ndarray) -> float:
    """As MPC's steps for single precision: difference to the element a row before, 32 words' bits transposed, words of
    zeros left out, a bit for each word."""
    words = rows.view(np.int32).reshape(-1)
    residual = words.copy()
    residual[rows.shape[1] :] -= words[: -rows.shape[1]]
    residual = (residual << 1) ^ (residual >> 31)
    residual = residual[: residual.size // 32 * 32].view(np.uint32).reshape(-1, 32)
    bits = np.unpackbits(residual.view(np.uint8).reshape(-1, 32, 4), axis=2)  # [groups, words, bits]
    kept = bits.any(axis=1).sum()  # transposed words that are not zero
    return (4 * kept + residual.size / 8) / residual.nbytes


def packed_ids_share(ids: np.ndarray) -> float:
    """Differences of ascending ids, groups of 128, each with the bits of its largest; against int64."""
    steps = np.diff(ids)[: (len(ids) - 1) // 128 * 128].reshape(-1, 128)
    bits = np.ceil(np.log2(steps.max(axis=1) + 1))
    return float((bits.sum() * 128 / 8 + len(steps) * 9) / (steps.size * 8))


def gradients(rows: torch.Tensor) -> torch.Tensor:
    """float32 [n, 128] of a mean over neighbours and two layers, for random graph and labels, after 20 steps."""
    torch.manual_seed(0)
    sources = torch.randint(len(rows), (len(rows), 10))
    first = torch.nn.Linear(2 * rows.shape[1], 256)
    second = torch.nn.Linear(256, 64)
    labels = (rows @ torch.randn(rows.shape[1], 64)).argmax(1)
    optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=0.01)
    x = torch.cat((rows, rows[sources].mean(1)), 1)
    for step in range(20):
        batch = torch.randint(len(rows), (1024,))
        optimizer.zero_grad()
        F.cross_entropy(second(F.relu(first(x[batch]))), labels[batch]).backward()
        if step < 19:
            optimizer.step()
    grads = torch.cat([p.grad.flatten() for p in [*first.parameters(), *second.parameters()]])
    return grads[: grads.numel() // 128 * 128].view(-1, 128)


def nvcomp_methods(payload: torch.Tensor) -> list[Method]:
    """nvCOMP's codecs on a GPU."""
    flat = payload.contiguous().view(-1).view(torch.uint8)
    return [nvcomp_method(name, kind, flat) for name, kind in NVCOMP[payload.dtype]]


def nvcomp_method(name: str, kind: str, payload: torch.Tensor) -> Method:
    from nvidia import nvcomp

    codec = nvcomp.Codec(algorithm=name, data_type=kind)
    share = codec.encode(nvcomp.as_array(payload.cuda())).buffer_size / len(payload)
    data = payload.repeat(-(-NVCOMP_BYTES // len(payload))).cuda()
    array = nvcomp.as_array(data)
    encoded = codec.encode(array)
    if not torch.equal(torch.from_dlpack(codec.decode(encoded, "|u1")).view(-1), data):
        raise SystemExit(f"nvCOMP {name} {kind}: other bytes than it was given")
    seconds = seconds_of(lambda: codec.encode(array)), seconds_of(lambda: codec.decode(encoded, "|u1"))
    rates = [len(data) / each / 1e9 for each in seconds]
    note = f"lossless; {rates[0]:.0f} GB/s, {rates[1]:.0f} GB/s"
    return Method(f"nvCOMP {name} {kind}", share, *rates, note)


def seconds_of(call: Callable[[], object]) -> float:
    """Median seconds of a call that works on the GPU."""
    taken = []
    for _ in range(REPEATS + 2):  # two to warm up
        torch.cuda.synchronize()
        begin = time.perf_counter()
        call()
        torch.cuda.synchronize()
        taken.append(time.perf_counter() - begin)
    return statistics.median(taken[2:])


def rows_methods(rows: torch.Tensor, speed: str, is_float32: bool) -> list[Method]:
    encode, decode = SPEEDS[speed]
    share = share_of(rows)
    found = [
        Method("stored rows (exponent)", share, STORED, decode, "lossless; rows lie encoded"),
        Method("exponent, encoded on the way", share, encode, decode, "lossless"),
    ]
    if is_float32:
        found.append(Method("MPC-like, at no cost", mpc_share(rows.numpy()), FREE, FREE, "lossless; upper bound"))
        profile = ibp.fit(rows, codec="planes", mantissa_bits=3)
        plane = profile.slot_bytes / profile.row_bytes
        found.append(Method("stored plane A, t = 3", plane, STORED, decode, "error up to 1/16"))
        found.append(Method("bfloat16", 0.5, *SPEEDS["cut"], "error up to 1/256"))
    return found


def payloads(file: Path, nvcomp: bool) -> dict[str, tuple[list[Method], list[str]]]:
    """Methods by payload, and the collectives that carry it; with nvCOMP's codecs or without."""
    rows = torch.from_numpy(np.load(file)).float()
    wide = rows[: len(rows) // 8 * 8].view(-1, 8 * rows.shape[1]).to(torch.bfloat16)
    ids = np.sort(np.random.default_rng(0).choice(2_449_029, 150_000, replace=False))  # of 1.2 M rows, from one of 8
    grads = gradients(rows)
    encode, decode = SPEEDS["exponent, float32"]
    of_nvcomp = [nvcomp_methods(each) if nvcomp else [] for each in (rows, wide, torch.from_numpy(ids), grads)]
    return {
        f"rows, float32 x {rows.shape[1]}": (
            rows_methods(rows, "exponent, float32", True) + of_nvcomp[0],
            ["all-to-all", "all-gather"],
        ),
        f"rows, bfloat16 x {wide.shape[1]}": (
            rows_methods(wide, "exponent, bfloat16", False) + of_nvcomp[1],
            ["all-to-all", "all-gather"],
        ),
        "ids, int64": (
            [
                Method("int32", 0.5, *SPEEDS["cut"], "below 2^31 rows"),
                Method("differences, packed, at no cost", packed_ids_share(ids), FREE, FREE, "upper bound"),
                *of_nvcomp[2],
            ],
            ["all-to-all"],
        ),
        "gradients, float32": (
            [
                Method("torch's bf16_compress_hook", 0.5, *SPEEDS["cut"], "sums in bfloat16"),
                Method("exponent, encoded on the way", share_of(grads), encode, decode, "lossless"),
                Method("MPC-like, at no cost", mpc_share(grads.numpy()), FREE, FREE, "lossless; upper bound"),
                *of_nvcomp[3],
            ],
            ["all-reduce"],
        ),
    }


def gains(method: Method, collective: str, ranks: int, gbits: float) -> tuple[float, float]:
    """Raw seconds over those of the method: one thing after the other, and beside each other."""
    link = gbits / 8
    sent, encoded, decoded = {
        "all-to-all": (1, 1, 1),
        "all-gather": (ranks - 1, 1, ranks - 1),
        "all-reduce": (2 * (ranks - 1) / ranks, 2 * (ranks - 1) / ranks, 2 * (ranks - 1) / ranks),
    }[collective]
    if method.name.startswith("torch's"):
        encoded = decoded = 1  # before and after; sums on the way are of what is sent
    parts = [sent * method.share / link, encoded / method.encode, decoded / method.decode]
    return sent / link / sum(parts), sent / link / max(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=Path, required=True, help=".npy file of float32 rows")
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument(
        "--gbits", type=lambda text: [float(each) for each in text.split(",")], default=[10, 100, 200, 400]
    )
    parser.add_argument("--nvcomp", action="store_true")
    args = parser.parse_args()
    rates = " | ".join(f"{gbits:g} Gbit/s" for gbits in args.gbits)
    print(f"| payload | collective | method | bytes | {rates} | |")
    print("|---|---|---|---|" + "---|" * (len(args.gbits) + 1))
    for payload, (methods, collectives) in payloads(args.rows, args.nvcomp).items():
        for collective in collectives:
            for method in methods:
                found = [gains(method, collective, args.ranks, gbits) for gbits in args.gbits]
                cells = " | ".join(f"{after:.2f} - {beside:.2f}" for after, beside in found)
                print(f"| {payload} | {collective} | {method.name} | {method.share:.1%} | {cells} | {method.note} |")


if __name__ == "__main__":
    main()
