"""What is wrong with a file, in our words."""

import msgspec
import pytest

from cohort_gnn.base.structures import line_of, line_of_json, misfit, named


class Inner(msgspec.Struct, forbid_unknown_fields=True):
    count: int | None = None
    names: list[str] | str | None = None


class Outer(msgspec.Struct):
    nodes: dict[str, Inner]
    pair: tuple[str, str] | None = None


def error_of(content) -> msgspec.ValidationError:
    with pytest.raises(msgspec.ValidationError) as error:
        msgspec.convert(content, Outer)
    return error.value


@pytest.mark.parametrize(
    ("content", "member", "expected", "found"),
    [
        ([], "", "keys with values", "a list"),
        ({}, "", "the key nodes", "none"),
        ({"nodes": None}, "nodes", "keys with values", "nothing"),
        ({"nodes": {"a": {"count": "3"}}}, "nodes[...].count", "an integer", "a text"),
        ({"nodes": {"a": {"names": 3}}}, "nodes[...].names", "a text or a list", "an integer"),
        ({"nodes": {"a": {"cont": 3}}}, "nodes[...]", "keys that are known", "cont"),
        ({"nodes": {1: {}}}, "nodes", "a text as key", "an integer"),
        ({"nodes": {}, "pair": ["a"]}, "pair", "a list of 2", "one of 1"),
    ],
)
def test_an_error_of_msgspec_says_member_expectation_and_what_is_there(content, member, expected, found):
    said = misfit(error_of(content))
    assert said == (member, expected, found) and "`" not in "".join(said)


def test_a_member_of_a_mapping_is_named():
    content = {"nodes": {"a": {"count": 3}, "b": {"count": "x"}, "c": {}}}

    def fits(other):
        try:
            msgspec.convert(other, Outer)
        except msgspec.ValidationError as error:
            return error
        return None

    assert named("nodes[...].count", content, fits) == "nodes.b.count"
    assert named("nodes", content, fits) == "nodes"


def test_lines_are_quoted():
    text = b'{"a": 1,\n "b": ]\n}\n'
    assert line_of_json(text) == ("line 2", '""b": ]"')
    assert line_of_json(b"{\n") == ("", '"{"')
    assert line_of(b"a\n\n\n", 4) == ("line 1", '"a"') and line_of(b"", 1) == ("line 1", "nothing")
    assert line_of(b"a\x00b" + b"c" * 99, 1) == ("line 1", '"a?b' + "c" * 57 + '"')
    assert line_of_json(b"[" * 100_000)[1].startswith("bytes that are no UTF-8")
