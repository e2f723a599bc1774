"""Types of options: one description of each, from which command line, TOML, run.json and the loader are checked.

A type is what annotations say: ``Annotated[int, Meta(ge=1)]``, ``Literal["a", "b"]``, lists, tuples and unions of such.
``msgspec`` converts and checks; errors name what was expected in words. The words of a type are found whatever their
case.
"""

import argparse
import functools
import inspect
import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.spelling import as_known, did_you_mean
from cohort_gnn.base.units import parse_bytes, parse_number

INT32_MAX = 2**31 - 1  # of what the programs hold in 32 bits
MOST_NUMBER = 1e9  # of what becomes seconds, or float32
LIMITS = (INT32_MAX, MOST_NUMBER, 2**63 - 1)  # which `described` leaves out

Positive = Annotated[int, Meta(ge=1, le=INT32_MAX)]
Dependency = Annotated[int, Meta(ge=1, le=1 << 20)]
NotNegative = Annotated[int, Meta(ge=0, le=INT32_MAX)]
Span = Annotated[int, Meta(ge=0, le=2**63 - 1)]  # of time, in nanoseconds, too
AboveZero = Annotated[float, Meta(gt=0, le=MOST_NUMBER)]
AtLeastZero = Annotated[float, Meta(ge=0, le=MOST_NUMBER)]
Probability = Annotated[float, Meta(ge=0, lt=1)]
Part = Annotated[float, Meta(ge=0, le=1)]
Seed = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Slots = Annotated[int, Meta(ge=2, le=64)]
Ranks = Annotated[int, Meta(ge=1, le=1024)]  # kMaxRanks of sampler/options.h
Hop = Annotated[int, Meta(ge=-1, le=INT32_MAX)]
Fanout = Annotated[list[Hop], Meta(min_length=1, description="one integer a hop, each -1 (all) or at least 0")]
ONCE = {"unique": True}
Gpus = Annotated[list[NotNegative], Meta(min_length=1, description="numbers of GPUs, each once: 0,1", extra=ONCE)]
Ratio = Annotated[float, Meta(ge=0, le=1e6)]
Ratios = Annotated[list[Ratio], Meta(min_length=1, description="numbers of at least 0")]
Bytes = Annotated[int, Meta(ge=0, description="bytes such as 20GB", extra={"unit": "bytes"})]
Count = Annotated[int, Meta(ge=1, le=2**48, description="a number such as 17 or 2.4M", extra={"unit": "number"})]
Share = Annotated[float, Meta(gt=0, le=1)]
FeatureDtype = Literal["float32", "float16", "bfloat16", "uint8"]
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
Loss = Annotated[
    str,
    Meta(
        pattern=r"^(bce|softmax|margin|focal|[A-Za-z_][\w.]*:[A-Za-z_]\w*)$",
        description="bce or softmax or margin or focal or package.module:function",
        extra={"words": ("bce", "softmax", "margin", "focal")},
    ),
]
ClassWeights = Annotated[
    str,
    Meta(
        pattern=r"(?s)^(balanced|.*\.(npy|csv))$",
        description="balanced, or a .npy or .csv file with a number for each class",
        extra={"words": ("balanced",)},
    ),
]
SeedOrder = Annotated[
    str,
    Meta(
        pattern=r"(?s)^(shuffle|.*\.npy)$",
        description="shuffle, or a .npy file with the community of each node",
        extra={"words": ("shuffle",)},
    ),
]
TaskName = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9_][\w.-]*$",
        description="node or link or the name of a task of the data set",
        extra={"words": ("node", "link")},
    ),
]
TimeWindow = Annotated[
    str,
    Meta(
        pattern=r"^({0}|[^=,]+={0}(,[^=,]+={0})*)$".replace("{0}", r"\d{1,18}(days|h|min|s|ms|us|ns)?"),
        description="a whole number, as 30 or 30days, or RELATION=NUMBER[,...] with some relations of the data set",
    ),
]
Time = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Topology = Literal["auto", "gpu", "host"]
Compress = Literal["auto", "none", "cache", "host", "both"]
Order = Literal["address", "asis"]
WeightAttr = Literal["edge_weight"]  # the one attribute of edges, by PyG's name
CachePolicy = Literal["plan", "degree", "random", "none"]
Device = Literal["auto", "cuda", "cpu"]


def checked(place: str, value: Any, type_: Any) -> Any:
    """A value of Python, JSON or TOML as the type: numbers of numpy and sequences become Python's.

    Raises:
        CohortError: it is none of the type.
    """
    try:
        return _unique(msgspec.convert(_cased(_plain(value), type_), type_, dec_hook=_made), type_)
    except (msgspec.ValidationError, ValueError):
        limits = (_too_large(repr(_plain(value)), alternative) for alternative in _alternatives(type_))
        expected = next(filter(None, limits), described(type_))
        hint = meant_by(value, type_) or _without_quotes(value, type_)
        raise CohortError(place, expected, repr(value)[:80], hint) from None


_Function = typing.TypeVar("_Function", bound=Callable)
# Annotations by which checked_arguments() checks, as they are written.
SIMPLE: dict[str, Any] = {
    "bool": bool,
    "int": int,
    "float": float,
    "str": str,
    "Bytes": Bytes,
    "Sequence[float]": list[float],
}
SIMPLE |= {f"{name} | None": type_ | None for name, type_ in SIMPLE.items()}


def checked_arguments(function: _Function) -> _Function:
    """The function, which refuses arguments that are unlike their annotations, of those in SIMPLE.

    Raises:
        CohortError: of a call, for such an argument.
    """
    signature, place = inspect.signature(function), function.__qualname__.removesuffix(".__init__")
    simple = {name: SIMPLE.get(_written(parameter.annotation)) for name, parameter in signature.parameters.items()}

    @functools.wraps(function)
    def call(*args, **kwargs):
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError:
            return function(*args, **kwargs)  # whose error names it
        for name, value in bound.arguments.items():
            if simple[name] is not None:
                bound.arguments[name] = checked(f"{place}: {name}", value, simple[name])
        return function(*bound.args, **bound.kwargs)

    return typing.cast(_Function, call)


def _written(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


def _without_quotes(value: Any, type_: Any) -> str:
    """What to write in Python or TOML for a text of the command line, such as [10, 5] for "10,5"; "" if unknown."""
    try:
        meant = parsed(value, type_) if isinstance(value, str) else None
    except ValueError:
        return ""
    return "" if meant is None or isinstance(meant, bool) else f"write it as {meant!r}"


def parsed(text: str, type_: Any) -> Any:
    """A word of the command line as the type; elements of lists are separated by commas.

    Raises:
        ValueError: it is none; the text says what was expected.
    """
    message = f"expected {described(type_)}"
    for alternative in _alternatives(type_):
        try:
            value = _cased(_split(text, alternative), alternative)
            return _unique(msgspec.convert(value, alternative, strict=False, dec_hook=_made), alternative)
        except msgspec.ValidationError:
            limit = _too_large(text, alternative)
            message = f"expected {limit}" if limit else message
        except ValueError as error:
            said = str(error).partition(", found")[0]
            message = said if said.startswith("expected ") else message
    raise ValueError(f"{message}, found {text}")


def kind(type_: Any):
    """A type as argparse's ``type``."""

    def parse(text: str) -> Any:
        try:
            return parsed(text, type_)
        except ValueError as error:
            hint = meant_by(text, type_)
            raise argparse.ArgumentTypeError(f"{error}\n  hint: {hint}" if hint else str(error)) from None

    return parse


def meant_by(value: Any, type_: Any) -> str:
    """The hint "did you mean WORD?" for a value; "" if no word of the type is near, or the type has no words."""
    words = words_of(type_)
    elements = value.split(",") if isinstance(value, str) else value if isinstance(value, list | tuple) else []
    wrong = (element for element in elements if isinstance(element, str) and _cased(element, type_) not in words)
    return next(filter(None, (did_you_mean(element, words) for element in wrong)), "")


def words_of(type_: Any) -> list[str]:
    """The words that a value of the type, or an element of it, may be."""
    words: list[str] = []
    for alternative in _alternatives(type_):
        base, meta = _base_of(alternative)
        if typing.get_origin(base) is Literal:
            words += [word for word in typing.get_args(base) if isinstance(word, str)]
        elif typing.get_origin(base) in (list, tuple):
            words += words_of(typing.get_args(base)[0])
        words += (meta.extra or {}).get("words", ())
    return words


def _cased(value: Any, type_: Any) -> Any:
    """The value, with words in the case in which the type has them."""
    if isinstance(value, list):
        return [_cased(element, type_) for element in value]
    return as_known(value, words_of(type_)) if isinstance(value, str) else value


def _too_large(text: str, type_: Any) -> str:
    """The expectation for a number that exceeds one of LIMITS; `described` does not mention these limits."""
    _, meta = _base_of(type_)
    try:
        return f"at most {int(meta.le):,}" if meta.le in LIMITS and float(text) > meta.le else ""
    except ValueError:
        return ""


def described(type_: Any) -> str:
    """What a value of the type is, in words."""
    kinds = [alternative for alternative in _alternatives(type_) if alternative is not type(None)]
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


def choices_of(type_: Any) -> list[str] | None:
    """The words of a type that is a Literal; None: it is another."""
    base, _ = _base_of(type_)
    return list(typing.get_args(base)) if typing.get_origin(base) is Literal else None


def _bounds(meta: Meta) -> str:
    if meta.ge is not None and meta.le is not None and meta.le not in LIMITS:
        return f" from {meta.ge:,.12g} to {meta.le:,.12g}"
    low = f"of at least {meta.ge:g}" if meta.ge is not None else f"above {meta.gt:g}" if meta.gt is not None else ""
    high = f"below {meta.lt:g}" if meta.lt is not None else ""
    high = f"at most {meta.le:g}" if meta.le is not None and meta.le not in LIMITS else high
    words = [word for word in (low, high) if word]
    return f" {' and '.join(words)}" if words else ""


def _base_of(type_: Any) -> tuple[Any, Meta]:
    """Splits Annotated[type, Meta] into the type and its Meta; other types get an empty Meta."""
    if typing.get_origin(type_) is Annotated:
        base, *metas = typing.get_args(type_)
        return base, metas[0]
    return type_, Meta()


def _alternatives(type_: Any) -> list[Any]:
    return list(typing.get_args(type_)) if typing.get_origin(type_) in (typing.Union, types.UnionType) else [type_]


def _split(text: str, type_: Any):
    """Converts text of the command line into values that msgspec converts further."""
    base, meta = _base_of(type_)
    if base is type(None):
        raise ValueError
    if typing.get_origin(base) is list:
        return [_split(part, typing.get_args(base)[0]) for part in text.split(",")]
    if typing.get_origin(base) is tuple:
        return tuple(_split(part, type_) for part, type_ in zip(text.split(","), typing.get_args(base), strict=True))
    if base is bool:
        return {"on": True, "off": False}.get(text, text)
    parse = {"bytes": parse_bytes, "number": parse_number}.get((meta.extra or {}).get("unit", ""))
    return parse(text) if parse else text


def _unique(value: Any, type_: Any) -> Any:
    """The value; raises ValueError for a list with equal elements whose type forbids them."""
    for alternative in _alternatives(type_):
        if (_base_of(alternative)[1].extra or {}).get("unique") and value is not None and len(set(value)) < len(value):
            raise ValueError(f"expected {described(type_)}")
    return value


def _plain(value: Any) -> Any:
    """The value with NumPy and torch types as Python's, and sequences as lists."""
    if type(value).__module__ in ("numpy", "torch") and hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, tuple | list):
        return [_plain(element) for element in value]
    return value


def _made(type_: type, value: Any) -> Any:
    """msgspec's hook for types that it does not know."""
    if type_ is Path and isinstance(value, str | Path):
        return Path(value)
    raise ValueError(f"{type_} of {value!r}")
