"""One name, one type: two types of one name in one namespace break C++'s one-definition rule, and no linker says so."""

import ast
import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ["base", "ibp", "dataset", "channel", "cache", "sampler", "trainer"]
CPP = {".h", ".cuh", ".cc", ".cu"}
KEYWORDS = r"(?:template <.*> )?(?:struct|class|union|enum class) (?:alignas\(\S+\) )?"
DEFINITION = KEYWORDS + r"(\w+\b(?:<\S+>)?)(?!::)(?![^{]*;)"


def types_of(text: str) -> list[tuple[str, str, int]]:
    """(namespace, name, line) of the types that clang-format's lines define where other files could see them."""
    found, namespaces = [], []
    for number, line in enumerate(text.splitlines(), 1):
        if opened := re.match(r"(?:inline )?namespace ?([\w:]*) ?\{$", line):
            namespaces.append(opened[1])
        elif line.startswith("}  // namespace"):
            namespaces.pop()
        elif "" not in namespaces and (defined := re.match(DEFINITION, line)):
            found.append(("::".join(namespaces), defined[1], number))
    return found


def test_a_namespace_has_no_two_types_of_one_name():
    places = defaultdict(list)
    for path in sorted(path for room in ROOMS for path in (ROOT / room).rglob("*") if path.suffix in CPP):
        for namespace, name, line in types_of(path.read_text()):
            places[f"{namespace}::{name}"].append(f"{path.relative_to(ROOT)}:{line}")
    assert len(places) > 200
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_types_of_others_namespaces_and_members_are_told_apart():
    text = """namespace a {
struct Forward;
struct Outer::Inner {
};
template <typename T>
class Shown final : public Base {
};
template <>
struct Shown<int> : Base {
};
namespace {
struct Hidden {
};
}  // namespace
enum class Kind : int { kOne };
}  // namespace a
"""
    assert types_of(text) == [("a", "Shown", 6), ("a", "Shown<int>", 9), ("a", "Kind", 15)]


# Words that say nothing of what a variable holds.
EMPTY_WORDS = re.compile(r"^_?(found|each|given|told|ends|of|of_\w+)$")
PYTHON = ["base", "spec", "ibp", "dataset", "channel", "cache", "trainer", "launch"]
KEPT_NAMES = {"base/errors.py: found", "ibp/table.py: of_zeros"}  # what an error has, and what users call


def empty_words(text: str) -> set[str]:
    """The variables, parameters and functions of a Python file with such names, without the fields of classes."""
    tree, names = ast.parse(text), set()
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    fields = {id(member.target) for each in classes for member in each.body if isinstance(member, ast.AnnAssign)}
    for node in ast.walk(tree):
        if id(node) in fields:
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
    return {name for name in names if EMPTY_WORDS.match(name)}


def test_names_of_python_say_what_they_hold():
    paths = [path for component in PYTHON for path in (ROOT / component).rglob("*.py")]
    assert len(paths) > 200
    odd = {f"{path.relative_to(ROOT)}: {name}" for path in paths for name in empty_words(path.read_text())}
    assert odd == KEPT_NAMES
    assert empty_words("def _of_x(given, row):\n    for each in row: total = 1\n") == {"_of_x", "given", "each"}
