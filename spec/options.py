"""How an option is declared: once, as a field of a dataclass, with all that others derive from it."""

import dataclasses
import functools
from collections.abc import Iterator
from enum import Flag, auto
from typing import Any, NamedTuple, get_type_hints

GROUPS = ("Model", "Training", "Sampling", "Cache", "Devices", "Output", "Experts")  # in the order of the help


class Affects(Flag):
    """What follows from an option's value."""

    NOTHING = 0  # may change when a run is resumed
    BATCHES = auto()  # which nodes and edges are in a batch
    LOSS = auto()  # what is computed with them
    MEMORY = auto()  # what the trainer needs of a GPU
    COURSE = auto()  # when the run ends, and when its trainers do something together besides a step


class Needs(Flag):
    """What a run must have, one of them at least, for an option to have an effect."""

    NOTHING = 0
    GPU = auto()
    AMX = auto()  # not known
    CPU = auto()  # as its device
    CACHE = auto()
    PARTS = auto()
    FAR_ROWS = auto()
    MACHINES = auto()


class Option(NamedTuple):
    """One option, as `options_of` gives it.

    Attributes:
        type: an annotation; see types.py.
        group: its title in the help; one of GROUPS.
        aliases: other flags.
        formerly: its name in the release before, which is still read; "": the same.
        for_sampler: the sampler has it under the same name (sampler/option_list.h).
        for_draws: its short runs that count reads have it, too.
        needs: without which it has no effect.
    """

    name: str
    type: Any
    default: Any
    help: str
    group: str
    affects: Affects
    metavar: str | None
    aliases: tuple[str, ...]
    formerly: str
    for_sampler: bool
    for_draws: bool
    needs: Needs

    @property
    def flag(self) -> str:
        return flag_of(self.name)

    @property
    def is_hidden(self) -> bool:
        """Not shown in the help."""
        return not self.help


def flag_of(name: str) -> str:
    """What the command line calls a field or an argument."""
    return f"--{name.replace('_', '-')}"


def option(
    default: Any,
    help: str = "",
    affects: Affects = Affects.NOTHING,
    *,
    group: str = "Experts",
    metavar: str | None = None,
    aliases: tuple[str, ...] = (),
    formerly: str = "",
    for_sampler: bool = False,
    for_draws: bool = False,
    needs: Needs = Needs.NOTHING,
) -> Any:
    """A field that is an option of commands; without `help` it is not shown."""
    about = {"help": help, "group": group, "affects": affects, "metavar": metavar, "aliases": aliases}
    about |= {"formerly": formerly, "for_sampler": for_sampler or for_draws, "for_draws": for_draws, "needs": needs}
    if isinstance(default, list):
        return dataclasses.field(default_factory=lambda: list(default), metadata=about)
    return dataclasses.field(default=default, metadata=about)


@functools.cache
def types_of(spec: type) -> dict[str, Any]:
    """The types of a dataclass' fields, by name, with what is said of them."""
    return get_type_hints(spec, include_extras=True)


def options_of(spec: type) -> Iterator[Option]:
    """The options that a dataclass declares, in order; other fields are none."""
    hints = types_of(spec)
    for field in dataclasses.fields(spec):
        if "affects" in field.metadata:
            made = field.default_factory
            default = field.default if made is dataclasses.MISSING else made()
            yield Option(field.name, hints[field.name], default, **field.metadata)


def names_that_affect(spec: type, what: Affects) -> set[str]:
    """Names of the options that affect any of `what`."""
    return {option.name for option in options_of(spec) if option.affects & what}
