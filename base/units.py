"""Numbers with units, for people."""

import re
from decimal import Decimal, InvalidOperation

SUFFIXES = {"k": 10**3, "m": 10**6, "g": 10**9, "b": 10**9}


def format_bytes(count: float) -> str:
    """ "1.50 GB", "312 B": decimal units, as base/check.h prints them."""
    units = ["B", "KB", "MB", "GB", "TB"]
    unit = 0
    while count >= 1000 and unit + 1 < len(units):
        count /= 1000
        unit += 1
    return f"{count:.0f} B" if unit == 0 else f"{count:.2f} {units[unit]}"


def format_seconds(seconds: float) -> str:
    """ "4.2 s", "3 min 20 s", "2 h 13 min", "3 d 4 h": the two largest units."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    rest = round(seconds)
    parts: list[str] = []
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        parts += [f"{count} {unit}"] if count or parts else []
    return " ".join(parts[:2])


def parse_bytes(text: str) -> int:
    """ "20GB", "1.5 MB" or "4096" as bytes; decimal units.

    Raises:
        ValueError: it is no such text, or below 0, or at least 2^63.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?(?:e\d+)?)\s*([KMGT]?)B?\s*", text, re.IGNORECASE)
    if match is None:
        raise ValueError(f"expected bytes such as 20GB, 512MB or 4096, found {text!r}")
    count = Decimal(match[1]) * 1000 ** " KMGT".index(match[2].upper() or " ")
    if count >= 2**63:
        raise ValueError(f"expected less than 2^63 bytes, found {text!r}")
    return int(count)


def parse_number(text: str) -> int:
    """ "2.4M", "1e6" or "17" as an integer.

    Raises:
        ValueError: it is no such text, or no whole number in [0, 2^63).
    """
    scale = SUFFIXES.get(text[-1:].lower(), 1)
    try:
        value = Decimal(text[:-1] if scale > 1 else text) * scale
        whole = int(value)
    except (InvalidOperation, ValueError, OverflowError):
        raise ValueError(f"expected a number such as 17, 2.4M or 1e6, found {text!r}") from None
    if whole != value or not 0 <= whole < 2**63:
        raise ValueError(f"expected a whole number in [0, 2^63), found {text!r}")
    return whole
