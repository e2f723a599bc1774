"""Types of options: one description of each, from which command line, TOML, run.json and the loader are checked.

A type is what annotations say: ``Annotated[int, Meta(ge=1)]``, ``Literal["a", "b"]``, lists, tuples and unions of such.
``msgspec`` converts and checks; errors name what was expected in words. The words of a type are found whatever their
case.
"""

import argparse
import types
import typing
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.spelling import as_known, did_you_mean
from cohort_gnn.base.units import parse_bytes

INT32_MAX = 2**31 - 1  # of what the programs hold in 32 bits
MOST_NUMBER = 1e9  # of what becomes seconds, or float32
LIMITS = (INT32_MAX, MOST_NUMBER, 2**63 - 1)  # which `described` leaves out

Positive = Annotated[int, Meta(ge=1, le=INT32_MAX)]
NotNegative = Annotated[int, Meta(ge=0, le=INT32_MAX)]
AboveZero = Annotated[float, Meta(gt=0, le=MOST_NUMBER)]
AtLeastZero = Annotated[float, Meta(ge=0, le=MOST_NUMBER)]
Probability = Annotated[float, Meta(ge=0, lt=1)]
Seed = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Slots = Annotated[int, Meta(ge=2, le=64)]
Hop = Annotated[int, Meta(ge=-1, le=INT32_MAX)]
Fanout = Annotated[list[Hop], Meta(min_length=1, description="one integer a hop, each -1 (all) or at least 0")]
ONCE = {"unique": True}
Gpus = Annotated[list[NotNegative], Meta(min_length=1, description="numbers of GPUs, each once: 0,1", extra=ONCE)]
Ratio = Annotated[float, Meta(ge=0, le=1e6)]
Ratios = Annotated[list[Ratio], Meta(min_length=1, description="numbers of at least 0")]
Bytes = Annotated[int, Meta(ge=0, description="bytes such as 20GB", extra={"unit": "bytes"})]
ByteCounts = Annotated[list[Bytes], Meta(min_length=1)]
ThreeNumbers = tuple[AtLeastZero, AtLeastZero, AtLeastZero]  # of local, peer and host memory

Named = Annotated[str, Meta(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$", description="package.module:Class")]
NegativesFrom = Annotated[
    str,
    Meta(
        pattern=r"^(uniform|degree(:\d(\.\d{1,9})?)?|batch)$",
        description="uniform, degree, degree:P (0 <= P < 10) or batch",
        extra={"words": ("uniform", "degree", "batch")},
    ),
]
Topology = Literal["auto", "gpu", "host"]
Compress = Literal["auto", "none", "cache", "host", "both"]
Order = Literal["address", "asis"]
WeightAttr = Literal["edge_weight"]  # the one attribute of edges, by PyG's name
CachePolicy = Literal["plan", "degree", "random", "none"]
Device = Literal["auto", "cuda", "cpu"]


def checked(place: str, value: Any, of: Any) -> Any:
    """A value of Python, JSON or TOML as the type: numbers of numpy and sequences become Python's.

    Raises:
        CohortError: it is none of the type.
    """
    try:
        return _unique(msgspec.convert(_cased(_plain(value), of), of, dec_hook=_made), of)
    except (msgspec.ValidationError, ValueError):
        told = (_too_large(repr(_plain(value)), each) for each in _alternatives(of))
        expected = next(filter(None, told), described(of))
        raise CohortError(place, expected, repr(value)[:80], meant_by(value, of)) from None


def parsed(text: str, of: Any) -> Any:
    """A word of the command line as the type; elements of lists are separated by commas.

    Raises:
        ValueError: it is none; the text says what was expected.
    """
    told = f"expected {described(of)}"
    for each in _alternatives(of):
        try:
            return _unique(msgspec.convert(_cased(_split(text, each), each), each, strict=False, dec_hook=_made), each)
        except msgspec.ValidationError:
            limit = _too_large(text, each)
            told = f"expected {limit}" if limit else told
        except ValueError as error:
            said = str(error).partition(", found")[0]
            told = said if said.startswith("expected ") else told
    raise ValueError(f"{told}, found {text}")


def kind(of: Any):
    """A type as argparse's ``type``."""

    def parse(text: str) -> Any:
        try:
            return parsed(text, of)
        except ValueError as error:
            hint = meant_by(text, of)
            raise argparse.ArgumentTypeError(f"{error}\n  hint: {hint}" if hint else str(error)) from None

    return parse


def meant_by(value: Any, of: Any) -> str:
    """The hint which word of the type a value was meant to be; "" where none is near, or the type has none."""
    words = words_of(of)
    given = value.split(",") if isinstance(value, str) else value if isinstance(value, list | tuple) else []
    wrong = (each for each in given if isinstance(each, str) and _cased(each, of) not in words)
    return next(filter(None, (did_you_mean(each, words) for each in wrong)), "")


def words_of(of: Any) -> list[str]:
    """The words that a type, or an element of it, may be."""
    found: list[str] = []
    for each in _alternatives(of):
        base, meta = _base_of(each)
        if typing.get_origin(base) is Literal:
            found += [word for word in typing.get_args(base) if isinstance(word, str)]
        elif typing.get_origin(base) in (list, tuple):
            found += words_of(typing.get_args(base)[0])
        found += (meta.extra or {}).get("words", ())
    return found


def _cased(value: Any, of: Any) -> Any:
    """The value, with words of the type as the type has them."""
    if isinstance(value, list):
        return [_cased(each, of) for each in value]
    return as_known(value, words_of(of)) if isinstance(value, str) else value


def _too_large(text: str, of: Any) -> str:
    """What is expected in place of a number that is above one of LIMITS, which `described` leaves out."""
    _, meta = _base_of(of)
    try:
        return f"at most {int(meta.le):,}" if meta.le in LIMITS and float(text) > meta.le else ""
    except ValueError:
        return ""


def described(of: Any) -> str:
    """What a value of the type is, in words."""
    kinds = [each for each in _alternatives(of) if each is not type(None)]
    if len(kinds) > 1:
        return " or ".join(map(described, kinds))
    base, meta = _base_of(kinds[0])
    if meta.description:
        return meta.description
    if typing.get_origin(base) is Literal:
        return " or ".join(map(str, typing.get_args(base)))
    if typing.get_origin(base) is list:
        return f"{described(typing.get_args(base)[0])} (several by commas)"
    if typing.get_origin(base) is tuple:
        parts = typing.get_args(base)
        return f"{len(parts)} of: {described(parts[0])}"
    names = {int: "an integer", float: "a number", bool: "true or false", str: "text", Path: "a path"}
    return names.get(base, str(base)) + _bounds(meta)


def choices_of(of: Any) -> list[str] | None:
    """The words of a type that is a Literal; None: it is another."""
    base, _ = _base_of(of)
    return list(typing.get_args(base)) if typing.get_origin(base) is Literal else None


def _bounds(meta: Meta) -> str:
    if meta.ge is not None and meta.le is not None and meta.le not in LIMITS:
        return f" from {meta.ge:g} to {meta.le:g}"
    low = f"of at least {meta.ge:g}" if meta.ge is not None else f"above {meta.gt:g}" if meta.gt is not None else ""
    high = f"below {meta.lt:g}" if meta.lt is not None else ""
    high = f"at most {meta.le:g}" if meta.le is not None and meta.le not in LIMITS else high
    words = [word for word in (low, high) if word]
    return f" {' and '.join(words)}" if words else ""


def _base_of(of: Any) -> tuple[Any, Meta]:
    """(the type less its annotations, the annotation)"""
    if typing.get_origin(of) is Annotated:
        base, *metas = typing.get_args(of)
        return base, metas[0]
    return of, Meta()


def _alternatives(of: Any) -> list[Any]:
    return list(typing.get_args(of)) if typing.get_origin(of) in (typing.Union, types.UnionType) else [of]


def _split(text: str, of: Any):
    """Text of the command line as what msgspec converts."""
    base, meta = _base_of(of)
    if base is type(None):
        raise ValueError
    if typing.get_origin(base) is list:
        return [_split(part, typing.get_args(base)[0]) for part in text.split(",")]
    if typing.get_origin(base) is tuple:
        return tuple(_split(part, of) for part, of in zip(text.split(","), typing.get_args(base), strict=True))
    if base is bool:
        return {"on": True, "off": False}.get(text, text)
    return parse_bytes(text) if (meta.extra or {}).get("unit") == "bytes" else text


def _unique(value: Any, of: Any) -> Any:
    """The value, of which a list whose type says so has no element twice."""
    for each in _alternatives(of):
        if (_base_of(each)[1].extra or {}).get("unique") and value is not None and len(set(value)) < len(value):
            raise ValueError(f"expected {described(of)}")
    return value


def _plain(value: Any) -> Any:
    """Without types of numpy and torch, and sequences as lists."""
    if isinstance(value, np.generic | np.ndarray) or type(value).__module__ == "torch" and hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    return value


def _made(of: type, value: Any) -> Any:
    """msgspec's hook for types that it does not know."""
    if of is Path and isinstance(value, str | Path):
        return Path(value)
    raise ValueError(f"{of} of {value!r}")
