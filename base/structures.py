"""What is wrong with a file of JSON, YAML or TOML, or with a member of it: in our words, in place of a parser's."""

import json
import re
from collections.abc import Callable
from typing import Any

KINDS = {
    "object": "keys with values",
    "array": "a list",
    "str": "a text",
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "null": "nothing",
    "date": "a date",
    "datetime": "a date",
}
LIMITS = {">=": "of at least", "<=": "of at most", ">": "above", "<": "below"}


def misfit(error: Exception) -> tuple[str, str, str]:
    """The member, such as ``edges[0].type``, what was expected there, and what was found, of an error of msgspec.
    "" is the whole file, and an expectation that it does not tell.

    >>> misfit(ValueError("Expected `int | null`, got `str` - at `$.nodes[...].count`"))
    ('nodes[...].count', 'an integer', 'a text')
    """
    said, _, at = str(error).partition(" - at ")
    member = at.rpartition("$")[2].strip("`.")
    key = " as key" if at.startswith("`key`") else ""
    if found := re.fullmatch(r"Expected `(.+?)`, got `(.+?)`", said):
        kinds = [each for each in found[1].split(" | ") if each != "null"] or ["null"]
        return member, " or ".join(KINDS.get(each, each) for each in kinds) + key, KINDS.get(found[2], found[2])
    if found := re.fullmatch(r"Expected `array` of (?:at least )?length (\D*)(\d+), got (\d+)", said):
        return member, f"a list of {found[2]}", f"one of {found[3]}"
    if found := re.fullmatch(r"Expected `(\w+)` ([<>]=?) (.+)", said):
        return member, f"{KINDS.get(found[1], found[1])} {LIMITS[found[2]]} {found[3]}{key}", "another"
    if found := re.fullmatch(r"Object missing required field `(.+?)`", said):
        return member, f"the key {found[1]}", "none"
    if found := re.fullmatch(r"Object contains unknown field `(.+?)`", said):
        return member, "keys that are known", found[1]
    if found := re.fullmatch(r"Invalid enum value (.+)", said):
        return member, "a value that is known", found[1]
    return member, "", said.replace("`", "")


def named(member: str, content: Any, fits: Callable[[Any], Exception | None]) -> str:
    """A member with the key in place of "[...]", for which msgspec says no name.

    Args:
        content: of the file.
        fits: gives the error of other content, with fewer keys.
    """
    before, _, _ = member.partition("[...]")
    inner = content
    for part in before.split("."):
        inner = inner.get(part) if isinstance(inner, dict) else None
    if "[...]" not in member or not isinstance(inner, dict):
        return member
    everything = dict(inner)
    for key, value in everything.items():
        inner.clear()
        inner[key] = value
        error = fits(content)
        if error is not None and misfit(error)[0] == member:
            return member.replace("[...]", f".{key}", 1)
    return member


def line_of_json(text: bytes) -> tuple[str, str]:
    """Where a text is no JSON, such as "line 3" ("" if it has only one), and that line."""
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        line, found = line_of(text, error.lineno)
        return line if b"\n" in text.strip() else "", found
    except (ValueError, RecursionError):
        return "", "bytes that are no UTF-8, or JSON that is too deep"
    return "", "other JSON"


def line_of(text: bytes, line: int) -> tuple[str, str]:
    """The place of a line, numbered from 1, and its content in quotes."""
    lines = text.decode("utf-8", "replace").splitlines()
    while line > 1 and (line > len(lines) or not lines[line - 1].strip()):  # a text ends without what it lacks
        line -= 1
    content = lines[line - 1].strip() if 0 < line <= len(lines) else ""
    content = "".join(sign if sign.isprintable() else "?" for sign in content)
    return f"line {line}", f'"{content[:60]}"' if content else "nothing"
