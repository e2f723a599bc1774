"""Errors in files of JSON, YAML or TOML, in Cohort's words instead of those of the parser."""

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
    """The parts of an error of msgspec: the member, such as ``edges[0].type``, what was expected there, what was found.
    The member "" is the whole file; the expectation is "" where msgspec gives none.

    >>> misfit(ValueError("Expected `int | null`, got `str` - at `$.nodes[...].count`"))
    ('nodes[...].count', 'an integer', 'a text')
    """
    said, _, at = str(error).partition(" - at ")
    member = at.rpartition("$")[2].strip("`.")
    key = " as key" if at.startswith("`key`") else ""
    if match := re.fullmatch(r"Expected `(.+?)`, got `(.+?)`", said):
        kinds = [name for name in match[1].split(" | ") if name != "null"] or ["null"]
        return member, " or ".join(KINDS.get(name, name) for name in kinds) + key, KINDS.get(match[2], match[2])
    if match := re.fullmatch(r"Expected `array` of (?:at least )?length (\D*)(\d+), got (\d+)", said):
        return member, f"a list of {match[2]}", f"one of {match[3]}"
    if match := re.fullmatch(r"Expected `(\w+)` ([<>]=?) (.+)", said):
        return member, f"{KINDS.get(match[1], match[1])} {LIMITS[match[2]]} {match[3]}{key}", "another"
    if match := re.fullmatch(r"Object missing required field `(.+?)`", said):
        return member, f"the key {match[1]}", "none"
    if match := re.fullmatch(r"Object contains unknown field `(.+?)`", said):
        return member, "keys that are known", match[1]
    if match := re.fullmatch(r"Invalid enum value (.+)", said):
        return member, "a value that is known", match[1]
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
        line, excerpt = line_of(text, error.lineno)
        return line if b"\n" in text.strip() else "", excerpt
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
