"""What commands' own arguments become, and the parser that reads them."""

import argparse
import sys
from pathlib import Path
from typing import Any

from cohort.spec.types import parsed


def kind(of: Any):
    """A type of cohort.spec.types as argparse's ``type``."""

    def parse(text: str) -> Any:
        try:
            return parsed(text, of)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parse


def add_dataset(parser: argparse.ArgumentParser, **about) -> None:
    """Adds DIR."""
    parser.usage = parser.usage or "%(prog)s DIR [options]"
    parser.add_argument("dataset", type=Path, metavar="DIR", **{"help": "folder of a data set"} | about)


def group(parser: argparse.ArgumentParser, title: str):
    """The group of the parser's help that has this title; a new one where there is none."""
    found = next((each for each in parser._action_groups if each.title == title), None)
    return found or parser.add_argument_group(title)


class CommandParser(argparse.ArgumentParser):
    """A parser that says what is wrong without its usage before it, and prints its help where it is to choose among
    commands and none is given."""

    def parse_known_args(self, args=None, namespace=None):
        words = sys.argv[1:] if args is None else args
        has_commands = any(isinstance(action, argparse._SubParsersAction) for action in self._actions)
        if has_commands and not words:
            self.print_help()
            self.exit()
        found, unknown = super().parse_known_args(words, namespace)
        if unknown and not has_commands:  # else the parser above would say it, and name itself
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown

    def error(self, message):
        self.exit(2, f"{self.prog}: error: {message}\nsee: {self.prog} --help\n")
