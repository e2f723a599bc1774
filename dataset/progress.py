"""How far a long piece of work is, for whoever watches."""

from __future__ import annotations

from collections.abc import Callable

# progress(what is being done, how much of it is done, in [0, 1])
Progress = Callable[[str, float], None]


def silent(what: str, fraction: float) -> None:
    """Tells nobody."""
