"""Numbers with units, for people."""


def format_bytes(count: float) -> str:
    """ "1.50 GB", "312 B": decimal units, as base/check.h prints them."""
    units = ["B", "KB", "MB", "GB", "TB"]
    unit = 0
    while count >= 1000 and unit + 1 < len(units):
        count /= 1000
        unit += 1
    return f"{count:.0f} B" if unit == 0 else f"{count:.2f} {units[unit]}"
