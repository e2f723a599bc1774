"""The parser of commands, their own arguments, and options, also of TOML files, from the fields that declare them."""

import argparse
import re
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cohort_gnn.base.errors import CohortError, why
from cohort_gnn.base.renamed import note_renamed, rename
from cohort_gnn.base.spelling import as_known, did_you_mean, nearest
from cohort_gnn.base.structures import line_of
from cohort_gnn.spec.options import GROUPS, Option, flag_of, options_of
from cohort_gnn.spec.types import checked, choices_of, described, kind, meant_by, parsed

TOML_HINT = "for instance: batch-size = 1024"
# Arguments that say what a command does with a file or folder.
NOT_IN_A_FILE = ("config", "overwrite", "resume", "import-to", "as-proposed")


def add_dataset(parser: argparse.ArgumentParser, **about) -> None:
    """Adds DIR."""
    parser.usage = parser.usage or "%(prog)s DIR [options]"
    parser.add_argument("dataset", type=Path, metavar="DIR", **{"help": "folder of a data set"} | about)


def group(parser: argparse.ArgumentParser, title: str):
    """The group of the parser's help that has this title; a new one where there is none."""
    match = next((candidate for candidate in parser._action_groups if candidate.title == title), None)
    return match or parser.add_argument_group(title)


class CommandParser(argparse.ArgumentParser):
    """A parser that says what is wrong without its usage before it, and prints its help where it is to choose among
    commands and none is given. Options have no abbreviations."""

    def __init__(self, **about: Any):
        super().__init__(allow_abbrev=False, **about)

    def parse_known_args(self, args=None, namespace=None):
        words = sys.argv[1:] if args is None else args
        has_commands = any(isinstance(action, argparse._SubParsersAction) for action in self._actions)
        if has_commands and not words:
            self.print_help()
            self.exit()
        if has_commands and words[0].startswith("-") and words[0] not in self._option_string_actions:
            option = words[0].partition("=")[0]
            self.error(f"expected a command before {option}, as in: {self.prog} COMMAND ... {option} ...")
        self._words = words
        parsed_args, unknown = super().parse_known_args(words, namespace)
        if unknown and not has_commands:  # else the parser above would say it, and name itself
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return parsed_args, unknown

    def error(self, message):
        """Ends the program. An argument that is missing, or too many, may follow from an option that is misspelled."""
        hints = []
        if message.startswith(("unrecognized", "the following arguments are required")):
            hints = [self._meant(word) for word in self._words]
        hint = "".join(f"\n  hint: {text}" for text in dict.fromkeys(filter(None, hints)))
        self.exit(2, f"{self.prog}: error: {message}{hint}\nsee: {self.prog} --help\n")

    def _meant(self, word: str) -> str:
        """A hint at the option that a misspelled word means; "" if the word is an option, or none is similar."""
        option = word.partition("=")[0]
        if not re.match(r"--?[A-Za-z]", option) or option in self._option_string_actions:
            return ""
        known = self._option_string_actions.items()
        suggestion = did_you_mean(option, (flag for flag, action in known if action.help is not argparse.SUPPRESS))
        return f"{option}: {suggestion}" if suggestion else ""

    def _get_value(self, action, arg_string):
        """Choices are found whatever their case."""
        if action.choices is not None and not isinstance(action, argparse._SubParsersAction):
            arg_string = as_known(arg_string, action.choices)
        return super()._get_value(action, arg_string)

    def _check_value(self, action, value):
        if action.choices is None or value in action.choices:
            return
        problem = f"expected {' or '.join(map(str, action.choices))}, found {value}"
        hint = did_you_mean(str(value), map(str, action.choices))
        raise argparse.ArgumentError(action, f"{problem}\n  hint: {hint}" if hint else problem)


def add_options(
    parser: argparse.ArgumentParser, spec: type, only: Iterable[str] | None = None, **texts: str | None
) -> None:
    """Adds the options that a class of cohort.spec.run declares, in groups.

    Options that are not on the command line are not in the parsed arguments: `spec_of` adds the defaults.

    Args:
        only: names of those to add; None: all.
        texts: help of some in place of their own; None: the option is left out.
    """
    options = [
        option
        for option in options_of(spec)
        if (only is None or option.name in only) and texts.get(option.name, "") is not None
    ]
    for title in GROUPS:
        if any(option.group == title and not option.is_hidden for option in options):
            group(parser, title)
    parser._negative_number_matcher = re.compile(r"-\.?\d[\d.,e-]*$")  # "--fanout -1,-1" gives a value, not an option
    for option in options:
        about: dict[str, Any] = {"dest": option.name, "default": argparse.SUPPRESS}
        text = texts.get(option.name) or option.help
        if "(default" not in text and option.default is not None and option.default is not False:
            text = f"{text} (default {as_text(option.default)})"
        about["help"] = argparse.SUPPRESS if option.is_hidden else text.replace("%", "%%")
        if option.type is bool:
            about["action"] = argparse.BooleanOptionalAction
        else:
            about |= {"type": kind(option.type), "metavar": option.metavar or _metavar(option.type)}
        group(parser, option.group).add_argument(option.flag, *option.aliases, **about)
        if option.formerly:
            rename(parser, flag_of(option.formerly), option.flag)


def _metavar(type_: Any) -> str | None:
    words = choices_of(type_)
    return "|".join(words) if words else None


def as_text(value: Any) -> str:
    """A value, roughly as written on the command line."""
    if isinstance(value, list | tuple):
        return ",".join(map(as_text, value))
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)


def as_given(value: Any) -> str:
    """`as_text`, also of an option without a value."""
    return "no value" if value is None else as_text(value)


def given_in(args: argparse.Namespace, spec: type) -> dict[str, Any]:
    """{option: value} of those on the command line, and below them in the --config file."""
    known = {option.name: option for option in options_of(spec)}
    config = read_config(args.config, known) if getattr(args, "config", None) else {}
    return config | {name: value for name, value in vars(args).items() if name in known}


def spec_of(args: argparse.Namespace, spec: type, **defaults: Any) -> Any:
    """The options of a command: as given, else of `defaults`, else as declared."""
    return spec(**defaults | given_in(args, spec))


def read_config(path: Path, known: dict[str, Option]) -> dict[str, Any]:
    """The values of a TOML file (``batch-size = 1024``) by option.

    Raises:
        CohortError: the file is no TOML, or names an unknown option, one twice, or a value the option does not take.
    """
    try:
        text = path.read_bytes()
        config = tomllib.loads(text.decode())
    except OSError as error:
        raise CohortError(str(path), "a TOML file of options", why(error), TOML_HINT) from error
    except UnicodeDecodeError as error:
        raise CohortError(str(path), "a TOML file of options", "bytes that are no text in UTF-8", TOML_HINT) from error
    except (ValueError, RecursionError) as error:
        number = re.search(r"at line (\d+)", str(error))
        line, content = line_of(text, int(number[1]) if number else text.count(b"\n") + 1)
        raise CohortError(f"{path}: {line}", "an option in TOML, once", content, TOML_HINT) from error
    flags = {alias[2:]: option for option in known.values() for alias in (option.flag, *option.aliases)}
    former = {flag_of(option.formerly)[2:]: option for option in known.values() if option.formerly}
    options = {}
    for name, value in config.items():
        option = flags.get(name.replace("_", "-"))
        if option is None and (option := former.get(name.replace("_", "-"))):
            note_renamed(str(path), name, option.flag[2:])
        if option is None:
            hint = "options have the names of the command's --help, without --"
            if (flag := name.replace("_", "-")) in NOT_IN_A_FILE:
                hint = f"pass --{flag} on the command line"
            elif isinstance(value, dict):
                hint = f"write the options without the line [{name}]"
            elif meant := nearest(name, flags):
                hint = f"did you mean {meant}?"
            raise CohortError(f"{path}: {name}", "an option of the command", "an unknown option", hint)
        if option.name in options:
            raise CohortError(f"{path}: {name}", f"{option.flag[2:]} once", "the same option under two names")
        options[option.name] = _from_toml(f"{path}: {name}", value, option)
    return options


def _from_toml(place: str, value: Any, option: Option) -> Any:
    """A value as TOML has it, or as text of the command line; one number stands for a list of one."""
    if isinstance(value, str):
        try:
            return parsed(value, option.type)
        except ValueError:
            raise CohortError(place, described(option.type), repr(value), meant_by(value, option.type)) from None
    try:
        return checked(place, value, option.type)
    except CohortError as error:
        try:
            return checked(place, [value], option.type)
        except CohortError:
            raise error from None


def changed_from_defaults(options: dict[str, Any], spec: type) -> dict[str, Any]:
    """The options, by name, whose values differ from the declared defaults."""
    defaults = {option.name: option.default for option in options_of(spec)}
    return {name: value for name, value in options.items() if value != defaults[name]}


def values_of(spec: Any) -> dict[str, Any]:
    """{option: value} of a spec."""
    return {option.name: getattr(spec, option.name) for option in options_of(type(spec))}
