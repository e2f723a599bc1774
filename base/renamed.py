"""Options that have another name now: for one release the old name works, too, with a note."""

import argparse
import sys
from typing import Any


class _Renamed(argparse.Action):
    """What the option does under its new name, after a note."""

    def __init__(self, option_strings: list[str], dest: str, *, now: argparse.Action, new: str, **about: Any):
        super().__init__(option_strings, dest, nargs=now.nargs, choices=now.choices, **about)
        self.type, self._now, self._new = now.type, now, new

    def __call__(self, parser, namespace, values, option_string=None):
        old = option_string or self.option_strings[0]
        new = f"--no-{self._new[2:]}" if old.startswith("--no-") else self._new
        note_renamed(parser.prog, old, new)
        self._now(parser, namespace, values, new)


def rename(parser: argparse.ArgumentParser, old: str, new: str) -> None:
    """Makes a parser that has the option ``new`` accept its flag of the release before, too."""
    now = parser._option_string_actions[new]
    flags = [old, f"--no-{old[2:]}"] if f"--no-{new[2:]}" in now.option_strings else [old]
    about: dict[str, Any] = {"dest": now.dest, "default": argparse.SUPPRESS, "help": argparse.SUPPRESS}
    parser.add_argument(*flags, action=_Renamed, now=now, new=new, metavar=now.metavar, **about)


def note_renamed(place: str, old: str, new: str) -> None:
    """Tells the user that an option has another name now."""
    note = f"{place}: note: {old} is called {new} now; the next release no longer takes the old name\n"
    sys.stderr.write(note)
