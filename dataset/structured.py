"""Files of YAML or JSON that describe a data set, decoded into structs; nothing in them can run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal, TypeVar, get_args, get_type_hints

import msgspec

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.spelling import did_you_mean

T = TypeVar("T", bound=msgspec.Struct)


def read_structured(path: Path, form: Literal["JSON", "YAML"], kind: type[T], what: str, hint: str) -> T:
    """The content of a file, of which unknown members are left out.

    Raises:
        CohortError: for a file that is missing, damaged or of another structure.
    """
    decode = msgspec.json.decode if form == "JSON" else msgspec.yaml.decode
    try:
        text = path.read_bytes()
        found = decode(text, type=kind)
        if form == "YAML" and (twice := _key_given_twice(text)):
            cure = "rename or remove one of them"
            raise CohortError(str(path), "each key once in its mapping", f"{twice} again", cure)
        return found
    except ImportError as error:
        raise CohortError(str(path), "the package PyYAML", f"none ({error})", "python -m pip install pyyaml") from error
    except msgspec.ValidationError as error:
        unknown = re.search(r"unknown field `(.+?)`", str(error))
        meant = did_you_mean(unknown[1], _keys_of(kind)) if unknown else ""
        raise CohortError(str(path), what, str(error), meant or hint) from error
    except (OSError, ValueError, RecursionError, msgspec.DecodeError) as error:
        problem = error.strerror if isinstance(error, OSError) and error.strerror else " ".join(str(error).split())
        raise CohortError(str(path), f"a readable {form} file", problem, hint) from error


def _keys_of(kind) -> set[str]:
    """The keys of a struct, and of those within it."""
    found: set[str] = set()
    for each in get_args(kind):
        found |= _keys_of(each)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        found |= set(kind.__struct_encode_fields__)
        for each in get_type_hints(kind).values():
            found |= _keys_of(each)
    return found


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
