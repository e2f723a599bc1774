"""Files of YAML or JSON that describe a data set, decoded into structs; nothing in them can run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_type_hints

import msgspec

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.files import demand_regular
from cohort_gnn.base.spelling import did_you_mean
from cohort_gnn.base.structures import KINDS, line_of, line_of_json, misfit, named

T = TypeVar("T", bound=msgspec.Struct)


def read_structured(
    path: Path, form: Literal["JSON", "YAML"], kind: type[T], what: str, hint: str, text: bytes | None = None
) -> T:
    """The content of a file, without unknown members.

    Args:
        text: of the file, which need not be there; None: it is read.

    Raises:
        CohortError: for a file that is missing, damaged or of another structure.
    """
    decode = msgspec.json.decode if form == "JSON" else msgspec.yaml.decode
    is_read, text = text is None, text or b""
    try:
        if is_read:
            demand_regular(path)
            text = path.read_bytes()
        content = decode(text, type=kind)
        if form == "YAML" and (twice := _key_given_twice(text)):
            cure = "rename or remove one of them"
            raise CohortError(str(path), "each key once in its mapping", f"{twice} again", cure)
        return content
    except ImportError as error:
        raise CohortError(str(path), "the package PyYAML", f"none ({error})", "python -m pip install pyyaml") from error
    except msgspec.ValidationError as error:
        try:
            content = decode(text)
        except msgspec.DecodeError as broken:  # behind the member that does not fit
            raise _no_json(path, text) from broken
        raise _mismatch(path, content, kind, what, hint, error) from error
    except OSError as error:
        raise CohortError(str(path), f"a readable {form} file", error.strerror or "another", hint) from error
    except (ValueError, RecursionError, msgspec.DecodeError) as error:
        if form == "JSON":
            raise _no_json(path, text) from error
        raise _no_yaml(path, text, error.__context__ or error, hint) from error


def file_beside(place: str, description: Path, file: str) -> Path:
    """A file that a description names, relative to its folder; links there are followed, wherever they lead.

    Raises:
        CohortError: the name leads out of the folder.
    """
    if not Path(file).name or Path(file).is_absolute() or ".." in Path(file).parts:
        hint = "keep the description beside the files, or link one into its folder: ln -s"
        raise CohortError(place, "a file in the folder of the description", file or "none", hint)
    return description.parent / file


def _mismatch(path: Path, content: Any, kind: type, what: str, hint: str, error: Exception) -> CohortError:
    """The error for a member of another type."""

    def fits(other: Any) -> Exception | None:
        try:
            msgspec.convert(other, kind)
        except msgspec.ValidationError as error:
            return error
        return None

    member, expected, actual = misfit(error)
    member = named(member, content, fits)
    if expected == "keys that are known":
        hint = did_you_mean(actual, _keys_of(kind)) or hint
    if expected.endswith(" as key"):
        hint = "put quotes around it"
    if not member and expected == KINDS["object"]:
        expected = what
    return CohortError(f"{path}: {member}".removesuffix(": "), expected or what, actual, hint)


def _no_json(path: Path, text: bytes) -> CohortError:
    """The error of a text that is no JSON."""
    line, problem = line_of_json(text)
    place = f"{path}: {line}".removesuffix(": ")
    return CohortError(place, "JSON", problem, "write the file again, or copy it again")


def _no_yaml(path: Path, text: bytes, error: BaseException, hint: str) -> CohortError:
    """The error of a text that is no YAML."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if mark is None:
        actual = "YAML that is too deep" if isinstance(error, RecursionError) else "bytes or signs that no text has"
        return CohortError(str(path), "YAML in UTF-8", actual, hint)
    place, line = line_of(text, mark.line + 1)
    cure = "look at the quotes, brackets and the blanks at the beginning of the lines, there and above"
    if tag := re.search(r"for the tag '(?:tag:yaml.org,2002:)?(.+)'", str(getattr(error, "problem", ""))):
        line, cure = f"the tag !!{tag[1]}", "leave tags out: nothing in the file is executed"
    elif b"\t" in text.splitlines()[min(mark.line, text.count(b"\n"))][: mark.column + 1]:
        line, cure = f"a tab before {line}", "indent by blanks"
    return CohortError(f"{path}: {place}", "YAML", line, cure)


def _keys_of(kind) -> set[str]:
    """The keys of a struct, and of those within it."""
    keys: set[str] = set()
    for member in get_args(kind):
        keys |= _keys_of(member)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        keys |= set(kind.__struct_encode_fields__)
        for member in get_type_hints(kind).values():
            keys |= _keys_of(member)
    return keys


def _key_given_twice(text: bytes) -> str | None:
    """A key that a mapping of a YAML file has several times, with its line: YAML's reader keeps the last one only."""
    import yaml

    at_hand, seen = [yaml.compose(text, yaml.SafeLoader)], set()
    while at_hand:
        node = at_hand.pop()
        if id(node) in seen:  # an alias
            continue
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            keys = set()
            for key, value in node.value:
                if isinstance(key, yaml.ScalarNode) and key.value in keys:
                    return f"line {key.start_mark.line + 1}: {key.value}"
                keys.add(key.value if isinstance(key, yaml.ScalarNode) else id(key))
                at_hand += [key, value]
        elif isinstance(node, yaml.SequenceNode):
            at_hand += node.value
    return None
