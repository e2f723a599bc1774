"""The IBP paper's own figures, measured and redrawn on this machine.

    PYTHONPATH=build/python python bench/ibp --paper [--data FOLDER]    measure all that can be, then draw
    python bench/ibp --paper --only gpu --out gpu.jsonl                 the GPU's part alone
    python bench/ibp --paper --from gpu.jsonl cpu.jsonl                 draw what was measured before, here or elsewhere

Writes docs/ibp-figures.md and docs/figures/ibp-*.png; measurements are JSON lines in OUT. FOLDER may hold citeseer.npz,
cora.npz, pubmed.npz and tables [rows, columns] as .npy files.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import paper_draw
import paper_report
import paper_rows

from cohort_gnn.base.errors import CohortError

ROOT = Path(__file__).resolve().parents[2]


def default_build() -> str:
    return os.environ.get("COHORT_BUILD", str(ROOT / "build"))


def build_program(build: Path, name: str) -> Path:
    """Builds a program of bench/ibp in the build folder; returns its path."""
    if not (build / "CMakeCache.txt").exists():
        raise CohortError(str(build), "a build folder", "no CMakeCache.txt", "cmake --preset release, or --build DIR")
    beside = Path(sys.executable).parent
    cmake = shutil.which("cmake", path=f"{beside}{os.pathsep}{os.environ.get('PATH', '')}") or "cmake"
    result = subprocess.run([cmake, "--build", str(build), "--target", name], capture_output=True, text=True)
    if result.returncode:
        found = (result.stdout + result.stderr)[-2000:]
        raise CohortError(f"build {name}", "success", found, "it takes a build with CUDA; --only cpu needs none")
    return build / "ibp" / name


def has_gpu() -> bool:
    try:
        return subprocess.run(["nvidia-smi", "-L"], capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


def measure_gpu(program: Path, tables: list[paper_rows.Rows], out: Path, scale: float) -> None:
    """Runs ibp_paper, which appends its JSON lines to `out`."""
    with tempfile.TemporaryDirectory() as folder:
        command = [str(program), str(out), "--scale", str(scale)]
        for rows in tables:
            path = Path(folder) / f"{rows.name}.bin"
            rows.data.tofile(path)
            command += ["--rows", f"{rows.name}:{rows.dtype}:{rows.data.shape[1]}:{path}"]
        result = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    if result.returncode:
        raise CohortError("ibp_paper", "exit status 0", f"{result.returncode}: {result.stderr.strip()}")


def measure_cpu(tables: list[paper_rows.Rows], out: Path) -> None:
    import paper_cpu  # loads the extension of cohort.ibp, which no other part needs

    with open(out, "a") as file:
        for rows in tables:
            for line in paper_cpu.measure(rows):
                file.write(json.dumps(line) + "\n")


def read(paths: list[Path]) -> list[dict]:
    """The measurements in files of JSON lines."""
    lines = []
    for path in paths:
        for number, text in enumerate(path.read_text().splitlines(), 1):
            try:
                line = json.loads(text)
            except json.JSONDecodeError as error:
                raise CohortError(f"{path}:{number}", "a JSON line", str(error)) from error
            if not isinstance(line, dict) or line.get("figure") not in paper_report.FIGURES:
                raise CohortError(f"{path}:{number}", f"a figure of {', '.join(paper_report.FIGURES)}", text[:80])
            lines.append(line)
    return lines


def measure(args) -> Path:
    tables = paper_rows.made_up() + (paper_rows.from_folder(args.data) if args.data else [])
    print("rows: " + ", ".join(f"{rows.name} {list(rows.data.shape)} {rows.dtype}" for rows in tables), flush=True)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.unlink(missing_ok=True)
    if args.only == "gpu" or (args.only is None and has_gpu()):
        measure_gpu(args.program or build_program(args.build, "ibp_paper"), tables, args.out, args.scale)
    elif args.only is None:
        print("no GPU here: only what the CPU can measure")
    if args.only != "gpu":
        measure_cpu(tables, args.out)
    return args.out


def parse(arguments: list[str] | None):
    parser = argparse.ArgumentParser(
        prog="python bench/ibp --paper", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--build", type=Path, default=Path(default_build()), help="build folder with CUDA")
    parser.add_argument("--program", type=Path, help="an ibp_paper that is built already, elsewhere perhaps")
    parser.add_argument("--data", type=Path, help="folder of real rows")
    parser.add_argument("--only", choices=["gpu", "cpu"], help="measure this part and draw nothing")
    parser.add_argument(
        "--from", dest="sources", type=Path, nargs="+", metavar="FILE", help="draw these, measure nothing"
    )
    parser.add_argument("--out", type=Path, default=ROOT / ".bench/ibp/paper.jsonl", help="measurements, JSON lines")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="where page and pictures go")
    parser.add_argument("--scale", type=float, default=1.0, help="of the GPU's tables: 0.1 for a quick look")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    args = parse(arguments)
    try:
        sources = args.sources or [measure(args)]
        lines = read(sources)
        if args.only and not args.sources:
            print(f"{args.out}: {len(lines)} measurements")
            return 0
        pictures = paper_draw.draw_all(lines, args.docs / "figures")
        page = args.docs / "ibp-figures.md"
        page.write_text(paper_report.page(lines, pictures))
        print(f"{page}, {', '.join(path.name for path in pictures.values())}")
    except (CohortError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
