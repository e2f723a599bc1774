"""One name, one type: two types of one name in one namespace break C++'s one-definition rule, and no linker says so."""

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
