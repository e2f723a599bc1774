"""What arguments of the command line become: functions for argparse's ``type``."""

import argparse
import math
import sys

from cohort.base.units import byte_count

MOST = 2**31 - 1  # of what the programs hold in 32 bits
MOST_NUMBER = 1e9  # of what becomes seconds, or float32


def integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected an integer, found {text}") from None


def number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a number, found {text}") from None


def fanout(text: str) -> list[int]:
    """ "25,10" -> [25, 10]"""
    numbers = [integer(part) for part in text.split(",")]
    if any(number < -1 for number in numbers):
        raise argparse.ArgumentTypeError(f"expected numbers of at least 0, or -1 for all, found {text}")
    if any(number > MOST for number in numbers):
        raise argparse.ArgumentTypeError(f"expected numbers of at most {MOST}, or -1 for all, found {text}")
    return numbers


def positive(text: str) -> int:
    if integer(text) < 1:
        raise argparse.ArgumentTypeError(f"expected at least 1, found {text}")
    return _at_most(MOST, integer(text))


def slots(text: str) -> int:
    if not 2 <= integer(text) <= 64:
        raise argparse.ArgumentTypeError(f"expected 2 to 64, found {text}")
    return integer(text)


def not_negative_number(text: str) -> int:
    if integer(text) < 0:
        raise argparse.ArgumentTypeError(f"expected at least 0, found {text}")
    return _at_most(MOST, integer(text))


def _at_most(most: float, value):
    if value > most:
        raise argparse.ArgumentTypeError(f"expected at most {most:,.0f}, found {value:g}")
    return value


def seed(text: str) -> int:
    if not 0 <= integer(text) < 2**63:
        raise argparse.ArgumentTypeError(f"expected a number in [0, 2^63), found {text}")
    return integer(text)


def gpus(text: str) -> list[int]:
    """ "0,1" -> [0, 1]"""
    numbers = [integer(part) for part in text.split(",")]
    if min(numbers) < 0 or len(set(numbers)) < len(numbers):
        raise argparse.ArgumentTypeError(f"expected numbers of at least 0, each once, found {text}")
    return numbers


def above_zero(text: str) -> float:
    if not 0 < number(text) < math.inf:
        raise argparse.ArgumentTypeError(f"expected a number above 0, found {text}")
    return _at_most(MOST_NUMBER, number(text))


def not_negative(text: str) -> float:
    if not 0 <= number(text) < math.inf:
        raise argparse.ArgumentTypeError(f"expected a number of at least 0, found {text}")
    return _at_most(MOST_NUMBER, number(text))


def probability(text: str) -> float:
    if not 0 <= number(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a number in [0, 1), found {text}")
    return number(text)


def ratios(text: str) -> list[float] | str:
    """ "0.05" -> [0.05], "0.1,0.2" -> [0.1, 0.2], "auto" """
    if text == "auto":
        return text
    numbers = [number(part) for part in text.split(",")]
    if not all(0 <= number <= 1e6 for number in numbers):
        raise argparse.ArgumentTypeError(f"expected numbers of at least 0, or auto, found {text}")
    return numbers


def numeric_ratios(text: str) -> list[float]:
    """ "0.1,0.2" -> [0.1, 0.2]"""
    if ratios(text) == "auto":
        raise argparse.ArgumentTypeError("expected numbers, found auto")
    return ratios(text)


def sampler_sms(text: str) -> int | str:
    """ "16" -> 16, "0" -> 0, "auto" """
    return text if text == "auto" else not_negative_number(text)


def byte_counts(text: str) -> list[int]:
    """ "20GB" or "20GB,10GB"."""
    return [byte_count(part) for part in text.split(",")]


def three(text: str) -> tuple[float, float, float]:
    """ "1500,360,51" """
    numbers = tuple(number(part) for part in text.split(","))
    if len(numbers) != 3 or not all(0 <= number < 1e9 for number in numbers):
        raise argparse.ArgumentTypeError(f"expected three numbers for local, peer and host, found {text}")
    return numbers


def add_device_option(parser) -> None:
    """Adds --device to a parser or a group of one."""
    parser.add_argument(
        "--device", choices=["auto", "cuda", "cpu"], default="auto", help="auto (default): a GPU where there is one"
    )


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


def note_given(parser: argparse.ArgumentParser) -> None:
    """Has the parser say in ``given`` which options (those added from now on) stand on the command line."""
    parser.register("action", None, _NotedStore)
    parser.register("action", "store_true", _NotedStoreTrue)
    parser.set_defaults(given=frozenset())


class _Noted(argparse.Action):
    """An option that adds its name to `given` when it stands on the command line."""

    def __call__(self, parser, namespace, values, option_string=None):
        super().__call__(parser, namespace, values, option_string)
        namespace.given = namespace.given | {self.dest}


class _NotedStore(_Noted, argparse._StoreAction):
    pass


class _NotedStoreTrue(_Noted, argparse._StoreTrueAction):
    pass
