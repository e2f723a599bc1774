"""The pictures of docs/ibp-figures.md."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

METHODS = {
    "memcpy_each_row": "CPU, a cudaMemcpy a row",
    "cpu_gather": "CPU gather, one cudaMemcpy",
    "zero_copy": "GPU, zero-copy",
    "zero_copy_aligned": "GPU, zero-copy, aligned",
    "gather_unordered": "Gather, rows in any order",
    "gather": "Gather",
}
SWEPT = ("zero_copy", "zero_copy_aligned", "gather_unordered", "gather")  # what runs on a number of SMs


def of(lines: list[dict], figure: str, **match) -> list[dict]:
    """The measurements of a figure whose fields are as given."""
    return [line for line in lines if line["figure"] == figure and all(line.get(k) == v for k, v in match.items())]


def distinct(lines: list[dict], key: str) -> list:
    """The values of a field, in order of first appearance."""
    return list(dict.fromkeys(line[key] for line in lines))


def draw_all(lines: list[dict], folder: Path) -> dict[str, Path]:
    """Draws the figures that have measurements; their paths by figure."""
    folder.mkdir(parents=True, exist_ok=True)
    drawers = {"copy": draw_copy, "decode": draw_decode, "sample": draw_sample, "chunk": draw_chunk}
    pictures = {}
    for name, drawer in drawers.items():
        if of(lines, name):
            pictures[name] = folder / f"ibp-{name}.png"
            figure = drawer(lines)
            figure.savefig(pictures[name], dpi=110, metadata={"Software": None})
            pyplot.close(figure)
    return pictures


def _panels(count: int, columns: int = 3, width: float = 4.4, height: float = 3.6):
    """A figure and `count` axes, `columns` in a line."""
    lines = -(-count // columns)
    columns = min(count, columns)
    figure, axes = pyplot.subplots(
        lines, columns, figsize=(width * columns, height * lines), layout="constrained", squeeze=False
    )
    for unused in axes.flat[count:]:
        unused.axis("off")
    return figure, list(axes.flat[:count])


def draw_copy(lines: list[dict]):
    """Figure 5: GB/s against the row's size, a panel for each number of SMs; CPU methods in the last."""
    measured = of(lines, "copy")
    counts = sorted(set(distinct(measured, "sms")))
    figure, panels = _panels(len(counts), width=4.8, height=4.2)
    for axes, sms in zip(panels, counts, strict=True):
        for number, (method, label) in enumerate(METHODS.items()):
            points = sorted((m["row_bytes"], m["gb_per_s"]) for m in of(measured, "copy", method=method, sms=sms))
            if points:
                axes.plot(*zip(*points, strict=True), marker="o", markersize=3, label=label, color=f"C{number}")
        for hardware in of(lines, "hardware")[:1]:
            axes.axhline(hardware["memcpy_gb_per_s"], color="black", linestyle=":", label="cudaMemcpy of 1 GiB")
        axes.set(xlabel="row, bytes", ylabel="GB/s", title=f"{sms} SMs")
        axes.set_xscale("log", base=2)
        axes.set_ylim(bottom=0)
    handles, labels = panels[-1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize="small")
    return figure


def draw_decode(lines: list[dict]):
    """Figure 7: decoded GB/s against the space saved, a panel for each row size."""
    measured = of(lines, "decode")
    sizes = sorted(set(distinct(measured, "row_bytes")))
    figure, panels = _panels(len(sizes))
    for axes, row_bytes in zip(panels, sizes, strict=True):
        for sms in sorted(set(distinct(measured, "sms"))):
            points = sorted(of(measured, "decode", row_bytes=row_bytes, sms=sms), key=lambda m: m["saved_percent"])
            saved = [m["saved_percent"] for m in points]
            (line,) = axes.plot(saved, [m["gb_per_s"] for m in points], marker="o", markersize=3, label=f"{sms} SMs")
            ideal = [m["ideal_gb_per_s"] for m in points]
            axes.plot(saved, ideal, color=line.get_color(), linestyle="--", label=f"{sms} SMs, not decoded")
            if points and points[0]["saved_percent"] == 0:
                axes.axhline(points[0]["gb_per_s"], color=line.get_color(), linestyle=":", linewidth=0.8)
        axes.set(xlabel="space saved, %", ylabel="decoded GB/s", title=f"rows of {row_bytes} B")
        axes.set_ylim(bottom=0)
    panels[0].legend(fontsize="small")
    return figure


def draw_sample(lines: list[dict]):
    """Table 5 as a picture: the ratio on held-out rows against the share of rows looked at."""
    measured = of(lines, "sample")
    names = distinct(measured, "rows")
    figure, panels = _panels(len(names), height=3)
    for axes, name in zip(panels, names, strict=True):
        for codec in distinct(of(measured, "sample", rows=name), "codec"):
            points = sorted((m["sample_percent"], m["ratio"]) for m in of(measured, "sample", rows=name, codec=codec))
            axes.plot(*zip(*points, strict=True), marker="o", markersize=3, label=codec)
        percents = sorted(set(distinct(measured, "sample_percent")))
        axes.set(xlabel="rows looked at, %", ylabel="raw bytes / encoded", title=name, xscale="log")
        axes.set_xticks(percents, map(str, percents))
        axes.minorticks_off()
        highest = max(m["ratio"] for m in of(measured, "sample", rows=name))
        axes.set_ylim(1, max(1 + 1.3 * (highest - 1), 1.01))
        axes.legend(fontsize="small")
    return figure


def draw_chunk(lines: list[dict]):
    """Figure 13: space saved by the invariant codec against the threshold, for each chunk size."""
    measured = of(lines, "chunk")
    names = distinct(measured, "rows")
    figure, panels = _panels(len(names), height=3)
    for axes, name in zip(panels, names, strict=True):
        for size in distinct(measured, "chunk_bytes"):
            chosen = of(measured, "chunk", rows=name, chunk_bytes=size)
            points = sorted((m["threshold_percent"], m["saved_percent"]) for m in chosen)
            if points:
                axes.plot(*zip(*points, strict=True), marker="o", markersize=3, label=f"{size} B chunks")
        axes.set(xlabel="threshold, %", ylabel="space saved, %", title=name)
        axes.legend(fontsize="small")
    return figure
