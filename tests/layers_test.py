"""The house has floors: reads every include, link and import, and fails on an edge that is not in the table below."""

import ast
import re
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]

# Who may include and link whom, the whole list; a room may always use itself. trainer stands for trainer/native.
ALLOWED = {
    "base": set(),
    "spec": set(),
    "ibp": {"base"},
    "dataset": {"base"},
    "channel": {"base"},
    "cache": {"ibp", "channel", "base"},
    "sampler": {"cache", "dataset", "channel", "base"},
    "trainer": {"channel", "base"},
    "launch": set(),
}
# Who may not import whom in Python. launch knows the two programs by argv only; launch/package, the package's
# front door, names what users import and is free to import it.
FORBIDDEN_IMPORTS = {
    "base": {"spec", "ibp", "dataset", "channel", "cache", "sampler", "trainer", "launch"},
    "spec": {"ibp", "dataset", "channel", "cache", "sampler", "trainer", "launch"},
    "ibp": {"spec", "dataset", "channel", "cache", "sampler", "trainer", "launch"},
    "dataset": {"ibp", "channel", "cache", "sampler", "trainer", "launch"},
    "channel": {"ibp", "dataset", "cache", "sampler", "trainer", "launch"},
    "cache": {"dataset", "channel", "sampler", "trainer", "launch"},
    "trainer": {"sampler", "launch"},
    "launch": {"sampler", "trainer"},
}
# A room's folders are floors as well: who may use whom there; "." stands for the room's own files. Folders that are not
# named (launch/setup, trainer/native, ...) are left out.
FLOORS = {
    "cache": {".": {"plan"}, "plan": set(), "remote": {".", "plan"}},
    "dataset": {
        ".": set(),
        "sorting": {"."},
        "generating": {".", "layouts", "importing"},
        "partitioning": {".", "sorting"},
        "layouts": {"."},
        "importing": {".", "layouts", "sorting"},
    },
    "ibp": {".": set(), "uses": {"."}},
    "trainer": {
        ".": set(),
        "nn": {"."},
        "models": {"."},
        "report": {".", "models"},
        "loop": {".", "models", "report"},
        "loader": {".", "loop", "report"},
        "predict": {".", "models"},
        "bench": {".", "models", "loop"},
    },
    "launch": {
        ".": set(),
        "options": {"."},
        "report": {"."},
        "data": {".", "options"},
        "run": {".", "options", "report", "data"},
        "plan": {".", "options", "run"},
        "tune": {".", "options", "report", "run"},
        "bench": {".", "options", "report", "data", "run", "tune"},
    },
}
# Own files of a room that stand above its folders, and that no folder may use.
DOORS = {
    "cache": {"__init__", "native"},
    "dataset": {"__init__", "cli", "native"},
    "ibp": {"__init__", "native", "native_gpu"},
    "trainer": {"__init__", "__main__"},
    "launch": {"main", "doctor"},
}
SOURCES = {".h", ".cuh", ".cc", ".cu", ".cpp"}


class Edge(NamedTuple):
    place: str  # file:line
    room: str
    used: str  # a room, or what stands in a room's place


def files_of(root: Path, room: str) -> list[Path]:
    return sorted(path for path in (root / room).rglob("*") if path.is_file())


def include_edges(root: Path, room: str) -> list[Edge]:
    """Quoted includes must begin with a room; angle brackets reach a room only if they name one."""
    edges = []
    for path in (path for path in files_of(root, room) if path.suffix in SOURCES):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = re.match(r'\s*#\s*include\s*(["<])([^">]+)[">]', line)
            if match is None:
                continue
            first = match[2].split("/")[0]
            if match[1] == '"' or (first in ALLOWED and "/" in match[2]):
                edges.append(Edge(f"{path.relative_to(root)}:{number}", room, first))
    return edges


def linked_rooms(command: str, arguments: list[str]) -> list[str]:
    """The rooms a CMake command links: cohort::room, or a room's bare name among the libraries."""
    if command == "target_link_libraries":
        if arguments and arguments[0].endswith("_test"):
            return []
        libraries = arguments[1:]
    elif command in ("cohort_library", "cohort_extension", "cohort_program") and "LINK" in arguments:
        libraries = arguments[arguments.index("LINK") + 1 :]
    else:
        return []
    named = re.findall(r"\bcohort::(\w+)", " ".join(libraries))
    return named + [library for library in libraries if library in ALLOWED]


def link_edges(root: Path, room: str) -> list[Edge]:
    edges = []
    for path in (path for path in files_of(root, room) if path.name == "CMakeLists.txt" or path.suffix == ".cmake"):
        text = re.sub(r"#[^\n]*", "", path.read_text())
        for match in re.finditer(r"(\w+)\s*\(([^()]*(?:\([^()]*\)[^()]*)*)\)", text):
            place = f"{path.relative_to(root)}:{text.count(chr(10), 0, match.start()) + 1}"
            edges += [Edge(place, room, used) for used in linked_rooms(match[1].lower(), match[2].split())]
    return edges


def imported_modules(node: ast.AST, package: list[str]) -> list[str]:
    """The absolute names an import statement can reach."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    base = package[: len(package) - node.level + 1] if node.level else []
    module = ".".join(base + (node.module.split(".") if node.module else []))
    return [f"{module}.{alias.name}" for alias in node.names]


def import_edges(root: Path, room: str) -> list[Edge]:
    edges = []
    for path in (path for path in files_of(root, room) if path.suffix == ".py"):
        if path.relative_to(root).parts[:2] == ("launch", "package"):
            continue
        package = ["cohort_gnn", *path.relative_to(root).parts[:-1]]
        for node in ast.walk(ast.parse(path.read_text(), str(path))):
            for name in (name.split(".") for name in imported_modules(node, package)):
                if name[0] == "cohort_gnn" and len(name) > 1 and name[1] in ALLOWED:
                    edges.append(Edge(f"{path.relative_to(root)}:{node.lineno}", room, name[1]))
    return edges


def folder_within(room: str, path: str) -> str | None:
    """The folder of a room that a path ("room/folder/file") lies in; own files: "." or "door"; None: left out."""
    parts = Path(path).parts
    if len(parts) == 2:
        return "door" if Path(parts[1]).stem in DOORS[room] else "."
    return parts[1] if parts[1] in FLOORS[room] else None


def used_paths(root: Path, room: str) -> list[tuple[str, str, str]]:
    """(file:line, the file, what it includes or imports) within a room, as paths from the root."""
    found = []
    for path in files_of(root, room):
        place = path.relative_to(root)
        if path.suffix in SOURCES:
            for number, line in enumerate(path.read_text().splitlines(), 1):
                match = re.match(r'\s*#\s*include\s*"([^"]+)"', line)
                if match and match[1].startswith(f"{room}/"):
                    found.append((f"{place}:{number}", str(place), match[1]))
        elif path.suffix == ".py":
            package = ["cohort_gnn", *place.parts[:-1]]
            for node in ast.walk(ast.parse(path.read_text(), str(path))):
                for name in imported_modules(node, package):
                    used = name.removeprefix("cohort_gnn.").replace(".", "/")
                    used = used if (root / used).with_suffix(".py").is_file() else str(Path(used).parent)
                    if used.startswith(f"{room}/") and (root / used).with_suffix(".py").is_file():
                        found.append((f"{place}:{node.lineno}", str(place), f"{used}.py"))
    return found


def wrong_within(root: Path, room: str) -> list[str]:
    """The edges between a room's folders that FLOORS does not allow."""
    wrong = []
    for place, path, used in used_paths(root, room):
        here, there = folder_within(room, path), folder_within(room, used)
        if here in (None, "door") or there in (None, here):
            continue
        if there not in FLOORS[room][here]:
            wrong.append(f"{place}: {Path(path).parent} may not use {used}")
    return wrong


def violations(root: Path) -> list[str]:
    """Every edge in the tree that the tables do not allow, as text."""
    wrong = []
    for room, allowed in ALLOWED.items():
        for edge in include_edges(root, room) + link_edges(root, room):
            if edge.used != room and edge.used not in allowed:
                wrong.append(f"{edge.place}: {room} may not use {edge.used}")
        for edge in import_edges(root, room):
            if edge.used in FORBIDDEN_IMPORTS.get(room, set()):
                wrong.append(f"{edge.place}: {room} may not import cohort_gnn.{edge.used}")
    for room in FLOORS:
        wrong += wrong_within(root, room)
    wrong += [f"{path.relative_to(root)}: sampler has no Python" for path in (root / "sampler").rglob("*.py")]
    return wrong


def test_every_edge_is_allowed():
    assert include_edges(ROOT, "base") and link_edges(ROOT, "sampler"), "the reader of the tree found nothing"
    assert violations(ROOT) == []


def test_only_base_chooses_gpus_and_opens_peers():
    calls = re.compile(r"cudaSetDevice|cudaDeviceEnablePeerAccess|\bmmap\(")
    rooms = [room for room in ALLOWED if room != "base"]
    found = {path for room in rooms for path in files_of(ROOT, room) if path.suffix in SOURCES}
    assert [str(path) for path in found if calls.search(path.read_text())] == []
    assert calls.search((ROOT / "base/device.cc").read_text())


def plant(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("dataset/a.cc", '#include "channel/ring.h"\n', "dataset/a.cc:1: dataset may not use channel"),
        ("base/a.h", '\n  #  include "dataset/reader.h"\n', "base/a.h:2: base may not use dataset"),
        ("sampler/deep/a.cu", '#include "trainer/native/a.h"', "sampler/deep/a.cu:1: sampler may not use trainer"),
        ("trainer/native/a.cc", "#include <sampler/a.h>", "trainer/native/a.cc:1: trainer may not use sampler"),
        ("channel/a.cc", '#include "../dataset/a.h"', "channel/a.cc:1: channel may not use .."),
        ("ibp/CMakeLists.txt", "cohort_library(ibp HOST a.cc\n LINK cohort::cache)", "1: ibp may not use cache"),
        ("sampler/CMakeLists.txt", "\ntarget_link_libraries(s PRIVATE ibp)", "2: sampler may not use ibp"),
        ("trainer/CMakeLists.txt", "cohort_extension(x SOURCES a.cc LINK cohort::dataset)", "may not use dataset"),
        ("sampler/CMakeLists.txt", "cohort_program(s SOURCES a.cc LINK base cohort::ibp)", "may not use ibp"),
        (
            "trainer/a.py",
            "import cohort_gnn.launch.run.mps\n",
            "trainer/a.py:1: trainer may not import cohort_gnn.launch",
        ),
        ("trainer/a.py", "\nfrom ..launch import mps\n", "trainer/a.py:2: trainer may not import cohort_gnn.launch"),
        ("trainer/a.py", "def f():\n  from cohort_gnn import launch\n", "trainer/a.py:2: trainer may not import"),
        (
            "launch/a.py",
            "from cohort_gnn.trainer.loop import run\n",
            "launch/a.py:1: launch may not import cohort_gnn.trainer",
        ),
        ("sampler/a.py", "", "sampler/a.py: sampler has no Python"),
        ("cache/plan/a.h", '#include "cache/b.h"\n', "cache/plan/a.h:1: cache/plan may not use cache/b.h"),
    ],
)
def test_a_planted_wrong_edge_is_found(tmp_path, name, text, said):
    plant(tmp_path, name, text)
    wrong = violations(tmp_path)
    assert len(wrong) == 1 and said in wrong[0]


@pytest.mark.parametrize(
    ("name", "text", "used", "is_wrong"),
    [
        ("trainer/report/a.py", "from cohort_gnn.trainer.loop import step\n", "trainer/loop/step.py", True),
        ("trainer/source.py", "from .report.floor import X\n", "trainer/report/floor.py", True),
        ("launch/run/a.py", "from cohort_gnn.launch.main import main\n", "launch/main.py", True),
        ("launch/run/a.py", "from cohort_gnn.launch.options.parser import b\n", "launch/options/parser.py", False),
        ("trainer/__main__.py", "from cohort_gnn.trainer.loop.trainer import T\n", "trainer/loop/trainer.py", False),
    ],
)
def test_folders_of_a_room_are_floors(tmp_path, name, text, used, is_wrong):
    plant(tmp_path, used, "")
    plant(tmp_path, name, text)
    expected = [f"{name}:1: {Path(name).parent} may not use {used}"] if is_wrong else []
    assert violations(tmp_path) == expected


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "sampler/a.cc",
            '#include "sampler/a.h"\n#include "cache/a.h"\n#include <cuda/std/span>\n',
        ),
        ("trainer/native/a.cc", '#include "trainer/native/a.h"\n#include "channel/a.h"\n#include "base/a.h"\n'),
        (
            "dataset/CMakeLists.txt",
            "cohort_extension(x SOURCES a.cc LINK cohort::dataset cohort::base)",
        ),
        (
            "dataset/CMakeLists.txt",
            "# cohort_library(x LINK channel)\ncohort_test(dataset LINK cohort::cache)",
        ),
        ("trainer/a.py", "import torch\nfrom cohort_gnn.base.errors import CohortError\nfrom . import loader\n"),
        ("launch/package/__init__.py", "from cohort_gnn.trainer.loader.neighbor import NeighborLoader\n"),
    ],
)
def test_an_allowed_edge_passes(tmp_path, name, text):
    plant(tmp_path, name, text)
    assert violations(tmp_path) == []
