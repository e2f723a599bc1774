"""Draws the figures of docs/concepts.md: `python docs/figures/draw.py` writes the SVG files beside this one."""

from pathlib import Path

INK, PALE = "#1f2933", "#ffffff"
SAMPLER, TRAINER, MEMORY, HELD = "#cfe3f7", "#d8efd3", "#f7e6c4", "#eadcf5"  # fills, by whose or what a box is


class Figure:
    """An SVG that is built from boxes, lines of text and arrows; coordinates are pixels."""

    def __init__(self, width: int, height: int, title: str):
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
            f'font-family="sans-serif" font-size="13" fill="{INK}" role="img" aria-label="{title}">',
            f'<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
            f'orient="auto"><path d="M0 0 8 4 0 8z" fill="{INK}"/></marker></defs>',
            f'<rect width="{width}" height="{height}" rx="6" fill="{PALE}"/>',
        ]

    def box(self, x: int, y: int, width: int, height: int, text: str = "", fill: str = PALE, dashed: bool = False):
        """Lines of `text` are centred; the first is bold where there are several."""
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self.parts.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="4" fill="{fill}" stroke="{INK}"{dash}/>'
        )
        lines = text.split("\n") if text else []
        top = y + height / 2 - 8.5 * (len(lines) - 1) + 4.5
        for i, line in enumerate(lines):
            self.text(x + width / 2, top + 17 * i, line, "middle", bold=i == 0 and len(lines) > 1)

    def text(self, x: float, y: float, text: str, anchor: str = "start", bold: bool = False, size: int = 13):
        weight = ' font-weight="bold"' if bold else ""
        self.parts.append(f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-size="{size}"{weight}>{text}</text>')

    def arrow(self, *points: tuple[int, int], dashed: bool = False):
        """Through the points, its tip at the last one."""
        path = " ".join(f"{x},{y}" for x, y in points)
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self.parts.append(
            f'<polyline points="{path}" fill="none" stroke="{INK}" stroke-width="1.4"{dash} marker-end="url(#tip)"/>'
        )

    def svg(self) -> str:
        return "\n".join([*self.parts, "</svg>"]) + "\n"


def processes() -> str:
    figure = Figure(760, 300, "The launcher starts a sampler and a trainer, which share a ring of slots")
    figure.box(
        20, 16, 720, 44, "cohort train, or your script's NeighborLoader: starts, watches, cleans up", dashed=True
    )
    figure.box(20, 90, 230, 190, fill=SAMPLER)
    figure.text(135, 112, "sampler (C++/CUDA)", "middle", bold=True)
    for i, text in enumerate(["1 shuffle, cut into batches", "2 draw neighbours", "3 fetch feature rows"]):
        figure.box(40, 126 + 48 * i, 190, 36, text)
    figure.box(300, 90, 160, 190, fill=MEMORY)
    figure.text(380, 112, "shared buffer", "middle", bold=True)
    for i in range(3):
        figure.box(325, 126 + 48 * i, 110, 36, f"slot {i}")
    figure.box(510, 90, 230, 190, fill=TRAINER)
    figure.text(625, 112, "trainer (PyTorch)", "middle", bold=True)
    for i, text in enumerate(["4 take a batch, uncopied", "5 forward, backward, step", "6 give the slot back"]):
        figure.box(525, 126 + 48 * i, 200, 36, text)
    for x in (135, 625):
        figure.arrow((x, 60), (x, 90), dashed=True)
    figure.arrow((230, 240), (274, 240), (274, 192), (325, 192))
    figure.arrow((435, 144), (525, 144))
    figure.arrow((525, 240), (435, 240))
    return figure.svg()


def slots() -> str:
    figure = Figure(760, 250, "The states of a slot")
    states = [
        ("free", "keeps the rows\nof an earlier batch", PALE),
        ("filling", "the sampler writes\nids, edges, rows", SAMPLER),
        ("ready", "whole; waits\nfor the trainer", MEMORY),
        ("held", "the trainer reads\nviews of it", TRAINER),
    ]
    for i, (name, text, fill) in enumerate(states):
        figure.box(15 + 190 * i, 40, 160, 80, f"{name}\n{text}", fill)
        if i:
            figure.arrow((190 * i - 15, 80), (15 + 190 * i, 80))
    figure.arrow((665, 120), (665, 160), (95, 160), (95, 120))
    figure.text(380, 180, "the last view of the batch dies", "middle")
    figure.text(
        380, 215, "All slots ready: training limits. None ready: the trainer waits, and the wait column says", "middle"
    )
    figure.text(380, 233, "how long. All held: the script keeps batches; batch.clone() lets their slots go.", "middle")
    return figure.svg()


def tiers() -> str:
    figure = Figure(760, 310, "Where the rows of a batch come from")
    figure.box(20, 110, 150, 90, "rows of a batch\neach looked up\nin a directory", SAMPLER)
    sources = [
        ("local", "this GPU's slab of the cache", TRAINER),
        ("recent", "batches before, still in the shared buffer: copied", HELD),
        ("peer", "slabs of GPUs of its clique, over NVLink", TRAINER),
        ("host", "all rows, pinned; encoded if prepared; over PCIe", MEMORY),
    ]
    for i, (name, text, fill) in enumerate(sources):
        y = 20 + 62 * i
        figure.box(230, y, 330, 48, f"{name}\n{text}", fill)
        figure.arrow((170, 155), (200, 155), (200, y + 24), (230, y + 24))
        figure.arrow((560, y + 24), (595, y + 24), (595, 155), (630, 155))
    figure.box(630, 110, 110, 90, "slot\ndecoded rows", MEMORY)
    figure.text(
        20,
        290,
        "The plan decides before the run which rows are local and peer: --cache-ratio R of the raw bytes on each GPU.",
    )
    return figure.svg()


def partition() -> str:
    figure = Figure(760, 250, "How the SMs of a GPU are shared")
    rows = [
        ("without MPS", [(420, "sampler, then trainer, in turn", MEMORY)]),
        ("MPS (default)", [(420, "both at once, on any SM", HELD)]),
        ("--sampler-sms 16", [(100, "sampler: 16", SAMPLER), (320, "trainer: all others", TRAINER)]),
    ]
    for i, (name, parts) in enumerate(rows):
        y, x = 46 + 62 * i, 190
        figure.text(20, y + 26, name, bold=True)
        for width, text, fill in parts:
            figure.box(x, y, width, 42, text, fill)
            x += width
    figure.text(190, 30, "the GPU's SMs")
    figure.arrow((285, 25), (608, 25))
    for i, line in enumerate(
        [
            ["time-sliced: they", "wait for each other"],
            ["they take SMs", "from each other"],
            ["neither disturbs", "the other"],
        ]
    ):
        for j, text in enumerate(line):
            figure.text(625, 64 + 62 * i + 16 * j, text, size=12)
    figure.text(190, 238, "Without --sampler-sms the fetch takes as few SMs as have batches ready in time.", size=12)
    return figure.svg()


FIGURES = {"processes.svg": processes, "slots.svg": slots, "tiers.svg": tiers, "partition.svg": partition}


if __name__ == "__main__":
    for name, draw in FIGURES.items():
        (Path(__file__).parent / name).write_text(draw())
