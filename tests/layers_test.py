"""Who may use whom: every include, link and import is an arrow that the table of docs/architecture.md lists, every
arrow listed there is used, and no arrows form a circle."""

import ast
import functools
import re
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCES = {".h", ".cuh", ".cc", ".cu", ".cpp"}
LANGUAGES = ("C++", "Python")


class Component(NamedTuple):
    """A row of the table: what a component may use in each language; it may always use itself."""

    name: str  # its folder, or its first file
    uses: dict[str, set[str]]


class Arrow(NamedTuple):
    place: str  # file:line
    user: str
    used: str
    language: str


def read_table(page: str) -> dict[str, Component]:
    """The table of a page that begins with "component": each path of a row's first cell, and its component."""
    table = {}
    for line in page.partition("\n| component |")[2].partition("\n\n")[0].splitlines()[2:]:
        paths, *lists, _ = (cell.strip() for cell in line.strip("|").split(" | "))
        names = [path.removesuffix("/") for path in re.findall(r"`([^`]+)`", paths)]
        uses = [set() if text == "-" else set(text.split(", ")) for text in lists]
        component = Component(names[0], dict(zip(LANGUAGES, uses, strict=True)))
        table |= dict.fromkeys(names, component)
    return table


PAGE = (ROOT / "docs/architecture.md").read_text()
TABLE = read_table(PAGE)
TOPS = sorted({name.split("/")[0] for name in TABLE})


def component_of(path: str) -> Component | None:
    """The component that a file or folder is in: the one with the longest path of those that it begins with."""
    parts = Path(path).with_suffix("").parts
    names = ("/".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next((TABLE[name] for name in names if name in TABLE), None)


def files_of(root: Path, top: str) -> list[Path]:
    return sorted(path.relative_to(root) for path in (root / top).rglob("*") if path.is_file())


def includes_of(root: Path, path: Path) -> Iterator[tuple[int, str]]:
    """(line, path): quoted includes, and those in angle brackets that name a component."""
    for number, line in enumerate((root / path).read_text().splitlines(), 1):
        match = re.match(r'\s*#\s*include\s*(["<])([^">]+)[">]', line)
        if match and (match[1] == '"' or (match[2].split("/")[0] in TOPS and "/" in match[2])):
            yield number, match[2]


def imported_modules(node: ast.AST, package: list[str]) -> list[str]:
    """The absolute names an import statement can reach."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    base = package[: len(package) - node.level + 1] if node.level else []
    module = ".".join(base + (node.module.split(".") if node.module else []))
    return [f"{module}.{alias.name}" for alias in node.names]


def imports_of(root: Path, path: Path) -> Iterator[tuple[int, str]]:
    """(line, path) of modules of the package; a name that is no module counts as its package or module."""
    package = ["cohort_gnn", *path.parts[:-1]]
    for node in ast.walk(ast.parse((root / path).read_text(), str(path))):
        for name in imported_modules(node, package):
            top, *parts = name.split(".")
            if top != "cohort_gnn":
                continue
            parts = ["trainer", *parts] if parts[:1] == ["nn"] else parts
            while parts and not is_module(root, "/".join(parts)):
                parts.pop()
            yield node.lineno, "/".join(parts) or "launch/package"


def is_module(root: Path, path: str) -> bool:
    return path in TABLE or (root / path).is_dir() or (root / f"{path}.py").is_file()


def linked_components(command: str, arguments: list[str]) -> list[str]:
    """The components a CMake command links: cohort::name, or a bare name among the libraries."""
    if command == "target_link_libraries":
        if arguments and arguments[0].endswith("_test"):
            return []
        libraries = arguments[1:]
    elif command in ("cohort_library", "cohort_extension", "cohort_program") and "LINK" in arguments:
        libraries = arguments[arguments.index("LINK") + 1 :]
    else:
        return []
    named = re.findall(r"\bcohort::(\w+)", " ".join(libraries))
    return named + [library for library in libraries if library in TOPS]


def links_of(root: Path, path: Path) -> Iterator[tuple[int, str]]:
    text = re.sub(r"#[^\n]*", "", (root / path).read_text())
    for match in re.finditer(r"(\w+)\s*\(([^()]*(?:\([^()]*\)[^()]*)*)\)", text):
        for used in linked_components(match[1].lower(), match[2].split()):
            yield text.count("\n", 0, match.start()) + 1, used


@functools.cache
def arrows(root: Path) -> list[Arrow]:
    """Every include and import from one component to another."""
    found = []
    for path in (path for top in TOPS for path in files_of(root, top)):
        user, language = component_of(str(path)), "C++" if path.suffix in SOURCES else "Python"
        if user is None or path.suffix not in SOURCES | {".py"}:
            continue
        for line, name in (includes_of if language == "C++" else imports_of)(root, path):
            used = component_of(name)
            if used != user:
                found.append(Arrow(f"{path}:{line}", user.name, used.name if used else name.split("/")[0], language))
    return found


def wrong_links(root: Path) -> list[str]:
    """Libraries are those of top-level folders: each may link what a component in its folder may include."""
    wrong = []
    for top in TOPS:
        uses = {
            used
            for component in TABLE.values()
            if component.name.split("/")[0] == top
            for used in component.uses["C++"]
        }
        allowed = {top, *(used.split("/")[0] for used in uses)}
        for path in files_of(root, top):
            if path.name == "CMakeLists.txt" or path.suffix == ".cmake":
                links = ((line, used) for line, used in links_of(root, path) if used not in allowed)
                wrong += [f"{path}:{line}: {top} may not link {used}" for line, used in links]
    return wrong


def violations(root: Path) -> list[str]:
    """Every arrow in the tree that the table does not allow, as text."""
    wrong = [each for each in arrows(root) if each.used not in TABLE[each.user].uses[each.language]]
    text = [f"{each.place}: {each.user} may not use {each.used} in {each.language}" for each in wrong]
    return text + wrong_links(root)


def test_every_arrow_is_allowed():
    assert arrows(ROOT) and list(links_of(ROOT, Path("sampler/CMakeLists.txt"))), "the reader of the tree found nothing"
    assert violations(ROOT) == []


def test_every_listed_arrow_is_used():
    used = {(each.user, each.used, each.language) for each in arrows(ROOT)}
    listed = {
        (each.name, other, language)
        for each in TABLE.values()
        for language in LANGUAGES
        for other in each.uses[language]
    }
    assert sorted(listed - used) == []


def circle(table: dict[str, Component]) -> list[str]:
    """Components that use each other in a circle, the first one again at the end; []: there is none."""
    uses = {
        component.name: {table[used].name for language in LANGUAGES for used in component.uses[language]}
        for component in table.values()
    }
    try:
        TopologicalSorter(uses).prepare()
    except CycleError as error:
        return error.args[1][::-1]
    return []


def test_components_do_not_use_each_other_in_a_circle():
    assert circle(TABLE) == []
    table = {"a": ({"b"}, set()), "b": (set(), {"c"}), "c": ({"a"}, set()), "d": ({"a"}, set())}
    components = {name: Component(name, dict(zip(LANGUAGES, uses, strict=True))) for name, uses in table.items()}
    assert set(circle(components)) == {"a", "b", "c"} and len(circle(components)) == 4


def test_every_folder_with_sources_is_a_component():
    folders = {path.parent for top in TOPS for path in files_of(ROOT, top) if path.suffix in SOURCES | {".py"}}
    assert [str(folder) for folder in sorted(folders) if component_of(str(folder)) is None] == []
    assert [name for name in TABLE if not any((ROOT / f"{name}{end}").exists() for end in ("", ".py", ".cc"))] == []


def test_the_picture_has_each_component_above_those_that_it_uses():
    picture = PAGE.partition("\n## Components\n")[2].split("```")[1]
    levels = {
        name: int(line.split()[0])
        for line in picture.splitlines()
        if re.match(r" *\d ", line)
        for name in re.findall(r"\w+", line)
        if name in TOPS
    }
    assert set(levels) == set(TOPS)
    tops = {(each.user.split("/")[0], each.used.split("/")[0]) for each in arrows(ROOT)}
    assert [(user, used) for user, used in sorted(tops) if user != used and levels[user] <= levels[used]] == []


def test_only_base_chooses_gpus_and_opens_peers():
    calls = re.compile(r"cudaSetDevice|cudaDeviceEnablePeerAccess|\bmmap\(")
    found = [path for top in TOPS if top != "base" for path in files_of(ROOT, top) if path.suffix in SOURCES]
    assert [str(path) for path in found if calls.search((ROOT / path).read_text())] == []
    assert calls.search((ROOT / "base/device.cc").read_text())


def plant(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("dataset/a.cc", '#include "channel/ring.h"\n', "dataset/a.cc:1: dataset may not use channel in C++"),
        ("base/a.h", '\n  #  include "dataset/reader.h"\n', "base/a.h:2: base may not use dataset"),
        (
            "sampler/deep/a.cu",
            '#include "trainer/nn/native/a.h"',
            "sampler/deep/a.cu:1: sampler may not use trainer/nn",
        ),
        (
            "trainer/nn/native/a.cc",
            "#include <sampler/a.h>",
            "trainer/nn/native/a.cc:1: trainer/nn may not use sampler",
        ),
        ("trainer/nn/native/a.cc", '#include "channel/a.h"', "trainer/nn may not use channel in C++"),
        ("channel/a.cc", '#include "../dataset/a.h"', "channel/a.cc:1: channel may not use .."),
        ("cache/plan/a.h", '#include "cache/b.h"\n', "cache/plan/a.h:1: cache/plan may not use cache in C++"),
        ("ibp/CMakeLists.txt", "cohort_library(ibp HOST a.cc\n LINK cohort::cache)", "1: ibp may not link cache"),
        ("sampler/CMakeLists.txt", "\ntarget_link_libraries(s PRIVATE ibp)", "2: sampler may not link ibp"),
        ("trainer/CMakeLists.txt", "cohort_extension(x SOURCES a.cc LINK cohort::dataset)", "may not link dataset"),
        ("sampler/CMakeLists.txt", "cohort_program(s SOURCES a.cc LINK base cohort::ibp)", "may not link ibp"),
        ("trainer/loop/a.py", "import cohort_gnn.launch.run.mps\n", "loop/a.py:1: trainer/loop may not use launch/run"),
        ("trainer/loop/a.py", "\nfrom ...launch import run\n", "loop/a.py:2: trainer/loop may not use launch/run"),
        ("trainer/loop/a.py", "def f():\n  from cohort_gnn import launch\n", "a.py:2: trainer/loop may not use launch"),
        ("launch/run/a.py", "from cohort_gnn.trainer.loop import b\n", "launch/run may not use trainer/loop in Python"),
        ("launch/run/a.py", "from cohort_gnn.launch.main import main\n", "launch/run may not use launch/main"),
        ("trainer/report/a.py", "from cohort_gnn.trainer.loop import b\n", "trainer/report may not use trainer/loop"),
        ("trainer/loader/a.py", "from ..loop.step import X\n", "trainer/loader may not use trainer/loop"),
        ("trainer/nn/a.py", "from cohort_gnn.trainer.loader import b\n", "trainer/nn may not use trainer/loader"),
        ("trainer/loader/a.py", "from cohort_gnn.nn.block import b\n", "trainer/loader may not use trainer/nn"),
        ("sampler/a.py", "import cohort_gnn.base.errors\n", "sampler/a.py:1: sampler may not use base in Python"),
    ],
)
def test_a_planted_wrong_arrow_is_found(tmp_path, name, text, said):
    plant(tmp_path, name, text)
    wrong = violations(tmp_path)
    assert len(wrong) == 1 and said in wrong[0]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("sampler/a.cc", '#include "sampler/a.h"\n#include "cache/a.h"\n#include <cuda/std/span>\n'),
        ("trainer/loader/native/a.cc", '#include "trainer/loader/native/a.h"\n#include "channel/a.h"\n'),
        ("dataset/CMakeLists.txt", "cohort_extension(x SOURCES a.cc LINK cohort::dataset cohort::base)"),
        ("dataset/CMakeLists.txt", "# cohort_library(x LINK channel)\ncohort_test(dataset LINK cohort::cache)"),
        ("trainer/loop/a.py", "import torch\nfrom cohort_gnn.base.errors import CohortError\nfrom . import step\n"),
        ("trainer/program.py", "from cohort_gnn.trainer.loop.trainer import Trainer\n"),
        ("launch/run/a.py", "from cohort_gnn.launch.options.parser import b\n"),
        ("launch/package/__init__.py", "from cohort_gnn.trainer.loader.neighbor import NeighborLoader\n"),
    ],
)
def test_an_allowed_arrow_passes(tmp_path, name, text):
    plant(tmp_path, name, text)
    assert violations(tmp_path) == []
