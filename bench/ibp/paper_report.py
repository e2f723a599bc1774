"""The page docs/ibp-figures.md: tables of what was measured, the paper's numbers beside them."""

from collections.abc import Iterable
from pathlib import Path

import paper_published as published
from paper_draw import METHODS, SWEPT, distinct, of

FIGURES = ("hardware", "copy", "decode", "codec", "sample", "chunk")
NOT_MEASURED = "Not measured: it takes a GPU.\n"

TOP = """# The IBP paper's figures on this machine

"Reducing the GPU Memory Bottleneck with Lossless Compression for ML" (EuroSys 2026) measured its codec on an A100 with
PCIe 4 x16. This page has the same figures for this code. It is written by

```bash
# needs a GPU
PYTHONPATH=build/python python bench/ibp --paper --data FOLDER    # FOLDER: citeseer.npz, cora.npz, tables as .npy
```

`--only gpu --out FILE` and `--only cpu --out FILE` measure the two parts separately; `--from FILE FILE` draws both. The
output of every GPU method is compared with its source before its number counts.
"""
COPY = """\
GB/s of random rows out of 4 GB in pinned memory. As in the paper, rows are one element longer than a power of two, so
they start at any offset. In the zero-copy kernels, each warp copies one row: 4 bytes per lane from the row's start, or
("aligned") 16 bytes per lane from the start of the 128-byte line in which the row starts. Gather (`ibp/gpu.h`, no
codec) uses bulk copies, in order of address except where the table says "in any order"; its time includes the sort.
"""
DECODE = """\
100,000 random rows out of 400,000 in pinned memory. As in the paper, an artificial mask determines the saving; the
other bits are random (in the paper, all bits are zero). "Not decoded" is the paper's ideal: rows as long as the encoded
rows, fetched without decoding. GB/s count decoded bytes; 0 % is the plain copy.
"""
CODEC = """\
All rows of a table (100,000 rows, or 512 MiB if that is less; smaller tables are repeated), one chunk per row, from
pinned memory to decoded rows in GPU memory. Speed-up is relative to Gather on raw rows. nvCOMP's batched interface
reads its rows in place, or (second number) after one cudaMemcpy of all rows; the better number counts. "Saved" includes
the gaps between Cohort's rows, and no gaps for nvCOMP. "Compress" is fit and encode. The paper's columns are for other
rows of the same kind, on an A100; the paper's IBP is beside Cohort's invariant codec. ndzip is not measured here.
"""
SAMPLE = """\
Raw bytes / encoded bytes. A fifth of the rows is held out; the codec is fitted on a share of the other rows and scored
on the held-out rows (in the paper, on all rows). For each table, the second codec is the choice of `fit`. The paper's
Cora is a larger data set of the same name.
"""
CHUNK = "Space saved in % by the codec invariant, fitted and scored on all rows as in the paper.\n"
CHUNK_PAPER = """\
The paper, on Products (100 x float32): 8-byte chunks save up to {best} %, thresholds of {low} to {high} % do best,
and chunks of 1 byte save less than 3 % (this codec has chunks of 4 and 8 bytes). The best here:
"""


def table(heads: list[str], rows: Iterable[list]) -> str:
    """A Markdown table."""
    body = [f"| {' | '.join(map(str, row))} |" for row in rows]
    return "\n".join([f"| {' | '.join(heads)} |", "|" + "---|" * len(heads), *body]) + "\n"


def signed(ours: float, theirs: float, digits: int = 1) -> str:
    return f"{ours - theirs:+.{digits}f}"


def page(lines: list[dict], pictures: dict[str, Path]) -> str:
    """The whole page, Markdown."""
    sections = {
        "copy": ("Ways to copy rows from host memory (Figure 5)", copy_section),
        "decode": ("Decompression against space saved (Figure 7)", decode_section),
        "codec": ("Comparison with nvCOMP (Tables 1 to 3)", codec_section),
        "sample": ("How few rows a fit needs (Table 5)", sample_section),
        "chunk": ("Chunk size against threshold (Figure 13)", chunk_section),
    }
    parts = [TOP, hardware(lines)]
    for figure, (title, section) in sections.items():
        parts.append(f"## {title}\n")
        if not of(lines, figure):
            parts.append(NOT_MEASURED)
            continue
        if figure in pictures:
            parts.append(f"![{title}](figures/{pictures[figure].name})\n")
        parts += section(lines)
    return "\n".join(parts)


def hardware(lines: list[dict]) -> str:
    for line in of(lines, "hardware"):
        cuda = "{}.{}".format(line["cuda_runtime"] // 1000, line["cuda_runtime"] % 1000 // 10)
        scaled = "" if line["scale"] == 1 else f" Tables are {line['scale']:g} of the sizes named below."
        return (
            f"Measured on {line['gpu']} ({line['sms']} SMs), CUDA {cuda}, with {line['cpu_threads']} CPU threads;\n"
            f"cudaMemcpy of 1 GiB from pinned memory: {line['memcpy_gb_per_s']:.1f} GB/s (the paper's A100: "
            f"{published.MEMCPY_GB_PER_S}).{scaled}\n"
        )
    return "No GPU took part: the sections that need one say so. What is below depends on the rows alone.\n"


def copy_section(lines: list[dict]) -> list[str]:
    measured = of(lines, "copy")
    sizes = sorted(set(distinct(measured, "row_bytes")))
    counts = sorted(set(distinct(measured, "sms")))
    rows = []
    for method, label in METHODS.items():
        for sms in counts:
            found = {m["row_bytes"]: m["gb_per_s"] for m in of(measured, "copy", method=method, sms=sms)}
            if found:
                where = sms if method in SWEPT else "-"
                rows.append([label, where, *(f"{found[s]:.1f}" if s in found else "" for s in sizes)])
    parts = [
        COPY,
        table(["method", "SMs", *(f"{s} B" for s in sizes)], rows),
    ]
    return parts + [copy_difference(measured, max(counts), sizes)]


def copy_difference(measured: list[dict], sms: int, sizes: list[int]) -> str:
    def gains(better: str, than: str) -> list[float]:
        rate = {(m["method"], m["row_bytes"]): m["gb_per_s"] for m in of(measured, "copy", sms=sms)}
        pairs = [(rate.get((better, size)), rate.get((than, size))) for size in sizes]
        return [100 * (a / b - 1) for a, b in pairs if a and b]

    text = []
    for better, than, note in (
        ("zero_copy_aligned", "zero_copy", f" (the paper: {published.ALIGNED_GAIN_PERCENT} %)"),
        ("gather", "zero_copy_aligned", ""),
        ("gather", "cpu_gather", ""),
    ):
        if found := gains(better, than):
            span = f"{min(found):+.0f} to {max(found):+.0f} %"
            text.append(f"- {METHODS[better]} over {METHODS[than]}, {sms} SMs: {span}{note}")
    return "\n".join(text) + "\n"


def decode_section(lines: list[dict]) -> list[str]:
    measured = of(lines, "decode")
    parts = [DECODE]
    for sms in sorted(set(distinct(measured, "sms"))):
        rows = [
            [
                m["row_bytes"],
                f"{m['saved_percent']:.1f}",
                f"{m['gb_per_s']:.1f}",
                f"{m['ideal_gb_per_s']:.1f}",
                f"{100 * m['gb_per_s'] / m['ideal_gb_per_s']:.0f} %",
            ]
            for m in of(measured, "decode", sms=sms)
        ]
        heads = ["row bytes", "saved %", "decoded GB/s", "not decoded GB/s", "of ideal"]
        parts += [f"{sms} SMs:\n", table(heads, rows)]
    return parts + [decode_difference(measured)]


def decode_difference(measured: list[dict]) -> str:
    """Ours of the ideal nearest to 90 % saved, on all SMs, beside the paper's."""
    sms = max(distinct(measured, "sms"))
    rows = []
    for row_bytes, theirs in published.DECODE_AT_90.items():
        found = of(measured, "decode", row_bytes=row_bytes, sms=sms)
        if not found:
            continue
        at = min(found, key=lambda m: abs(m["saved_percent"] - 90))
        ours = 100 * at["gb_per_s"] / at["ideal_gb_per_s"]
        rows.append([row_bytes, f"{at['saved_percent']:.1f}", f"{ours:.0f}", theirs, signed(ours, theirs, 0)])
    heads = ["row bytes", "saved %", "% of ideal here", "in the paper, at 90 %", "difference"]
    dense = [
        100 * m["gb_per_s"] / m["ideal_gb_per_s"] for m in of(measured, "decode", sms=sms) if m["saved_percent"] < 50
    ]
    text = f"\nBelow 50 % saved, as for dense rows: at least {min(dense):.0f} % of the ideal.\n" if dense else ""
    return table(heads, rows) + text


def codec_section(lines: list[dict]) -> list[str]:
    measured = of(lines, "codec")
    parts = [CODEC]
    for name in distinct(measured, "rows"):
        found = of(measured, "codec", rows=name)
        raw = next((m["gb_per_s"] for m in found if m["algorithm"] == "raw" and "gb_per_s" in m), None)
        column = published.NEAREST.get(name)
        beside = f", the paper: {column}" if column else ""
        heads = ["codec", "GB/s", "speed-up", "paper", "saved %", "paper", "compress ms", "paper"]
        parts += [f"**{name}**{beside}\n", table(heads, (codec_row(m, raw, column) for m in found))]
    return parts


def codec_row(measured: dict, raw: float | None, column: str | None) -> list:
    name = measured["algorithm"]
    if "missing" in measured:
        return [name, measured["missing"].replace("\n", " ").replace("|", "/"), "", "", "", "", "", ""]
    theirs = "IBP" if name == "cohort invariant" else name
    at = published.COLUMNS.index(column) if column else None

    def paper(numbers: dict) -> str:
        return str(numbers[theirs][at]) if at is not None and theirs in numbers else ""

    rates = [measured[key] for key in ("gb_per_s", "copy_first_gb_per_s") if key in measured]
    return [
        name,
        " / ".join(f"{rate:.1f}" for rate in rates),
        f"{max(rates) / raw:.2f}" if raw else "",
        paper(published.SPEEDUP),
        f"{measured['saved_percent']:.2f}",
        paper(published.SAVED_PERCENT),
        f"{measured['compress_ms']:.1f}",
        paper(published.COMPRESS_MS),
    ]


def sample_section(lines: list[dict]) -> list[str]:
    measured = of(lines, "sample")
    percents = sorted(set(distinct(measured, "sample_percent")))
    rows = []
    for name in distinct(measured, "rows"):
        for codec in distinct(of(measured, "sample", rows=name), "codec"):
            ratio = {m["sample_percent"]: m["ratio"] for m in of(measured, "sample", rows=name, codec=codec)}
            rows.append([name, codec, *(f"{ratio[p]:.3f}x" if p in ratio else "" for p in percents)])
        if name in published.SAMPLE:
            theirs = dict(zip(published.SAMPLE_PERCENTS, published.SAMPLE[name], strict=True))
            rows.append([name, "the paper's IBP", *(f"{theirs[p]}x" if p in theirs else "" for p in percents)])
    return [
        SAMPLE,
        table(["rows", "codec", *(f"{p} %" for p in percents)], rows),
        sample_difference(measured),
    ]


def sample_difference(measured: list[dict]) -> str:
    rows = []
    for name in distinct(measured, "rows"):
        ratio = {m["sample_percent"]: m["ratio"] for m in of(measured, "sample", rows=name, codec="invariant")}
        if 100 not in ratio or min(ratio) == 100:
            continue
        lost = 100 * (1 - ratio[min(ratio)] / ratio[100])
        theirs = published.SAMPLE.get(name)
        against = f"{ratio[100] / theirs[-1] - 1:+.1%}".replace("%", " %") if theirs else ""
        rows.append([name, f"{lost:.2f}", f"{100 * (1 - theirs[0] / theirs[-1]):.2f}" if theirs else "", against])
    heads = [
        "rows, codec invariant",
        "% lost with the smallest sample",
        "in the paper",
        "ratio against the paper's",
    ]
    return table(heads, rows)


def chunk_section(lines: list[dict]) -> list[str]:
    measured = of(lines, "chunk")
    percents = sorted(set(distinct(measured, "threshold_percent")))
    rows, best = [], []
    for name in distinct(measured, "rows"):
        for size in distinct(measured, "chunk_bytes"):
            found = of(measured, "chunk", rows=name, chunk_bytes=size)
            saved = {m["threshold_percent"]: m["saved_percent"] for m in found}
            rows.append([name, f"{size} B", *(f"{saved[p]:.2f}" if p in saved else "" for p in percents)])
        top = max(of(measured, "chunk", rows=name), key=lambda m: m["saved_percent"])
        best.append([name, f"{top['chunk_bytes']} B", f"{top['threshold_percent']} %", f"{top['saved_percent']:.2f}"])
    low, high = published.BEST_THRESHOLDS
    return [
        CHUNK,
        table(["rows", "chunk", *(f"{p} %" for p in percents)], rows),
        CHUNK_PAPER.format(best=published.CHUNK8_BEST_PERCENT, low=low, high=high),
        table(["rows", "chunk", "threshold", "saved %"], best),
    ]
