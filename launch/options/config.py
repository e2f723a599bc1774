"""Options from a TOML file."""

import argparse
import tomllib
from pathlib import Path

from cohort.base.errors import CohortError


def apply_config(parser: argparse.ArgumentParser, path: Path) -> frozenset[str]:
    """Makes the values of a TOML file (``batch-size = 1024``) the parser's defaults, so that arguments win over them.

    Returns:
        the names of the options that the file has.

    Raises:
        CohortError: the file is no TOML, or names an unknown option or a value the option does not take.
    """
    try:
        config = tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:  # ValueError: no TOML, or no UTF-8
        raise CohortError(str(path), "a TOML file of options", str(error), "for instance: batch-size = 1024") from error
    names = [(text.removeprefix("--"), action) for action in parser._actions for text in action.option_strings]
    options = {name.replace("-", "_"): action for name, action in names if name not in ("-h", "help", "config")}
    configured = set()
    for name, value in config.items():
        action = options.get(name.replace("-", "_"))
        if action is None:
            known = ", ".join(sorted(dest.replace("_", "-") for dest in options if not dest.startswith("debug")))
            hint = "options stand here without --, as cohort train --help has them"
            raise CohortError(f"{path}: {name}", f"one of {known}", "an unknown option", hint)
        parser.set_defaults(**{action.dest: _converted(action, value, f"{path}: {name}")})
        configured.add(action.dest)
    return frozenset(configured)


def parse_configured(parser: argparse.ArgumentParser, argv: list[str] | None = None) -> argparse.Namespace:
    """Parses a command line, with the values of its --config file, if it has one, as defaults.

    ``config_parser`` of what was parsed is the parser of the command that has the option.
    """
    args = parser.parse_args(argv)
    if getattr(args, "config", None):
        configured = apply_config(args.config_parser, args.config)
        args = parser.parse_args(argv)
        args.configured = configured
    return args


def _converted(action: argparse.Action, value, place: str):
    """A TOML value as the option's type; a list stands for comma-separated text."""
    if action.type is Path and not isinstance(value, str):
        raise CohortError(place, "a path in quotes", repr(value))
    if isinstance(value, bool) and action.choices and "on" in action.choices:
        value = "on" if value else "off"
    text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    try:
        converted = action.type(text) if action.type else text if action.nargs != 0 else value
    except (ValueError, argparse.ArgumentTypeError) as error:
        raise CohortError(place, "a value as on the command line", f"{value!r} ({error})") from error
    if action.choices and converted not in action.choices:
        raise CohortError(place, f"one of {', '.join(action.choices)}", repr(value))
    if isinstance(action, argparse._StoreTrueAction) and not isinstance(value, bool):
        raise CohortError(place, "true or false", repr(value))
    return converted
