"""What mkdocs needs beside the pages in docs/ (mkdocs.yml names this file as its hook).

The two reference pages are written here from the code: the tree of argparse, and the names that the packages export,
whose docstrings mkdocstrings reads. Pages of the navigation that lie elsewhere in the repository (formats, changes)
join the site from there, and links are led to where their targets are in the site.
"""

import argparse
import importlib
import inspect
import posixpath
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ["cohort_gnn", "cohort_gnn.nn", "cohort_gnn.dataset", "cohort_gnn.ibp"]
BESIDE = {
    "NeighborLoader": ["cohort_gnn.trainer.loader.batch.Batch", "cohort_gnn.trainer.loader.stats.LoaderStats"]
}  # what a class hands out
LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")


# --- hooks of mkdocs ------------------------------------------------------------------------------------------------


def on_files(files, config):
    """Adds the generated pages, and those pages of the navigation that are not in docs/."""
    from mkdocs.structure.files import File

    for uri, text in generated_pages().items():
        files.append(File.generated(config, uri, content=text))
    for uri in navigation(config["nav"]):
        if files.get_file_from_path(uri) is None and (ROOT / uri).is_file():
            files.append(File.generated(config, uri, abs_src_path=str(ROOT / uri)))
    return files


def on_page_markdown(markdown, page, config, files):
    """Leads links between files of the repository to where these are in the site; others become plain text."""
    uri = page.file.src_uri
    place = f"docs/{uri}" if (ROOT / "docs" / uri).is_file() else uri

    def lead(match: re.Match) -> str:
        text, target = match[1], match[2]
        if re.match(r"[a-z]+:|#", target):
            return match[0]
        path, _, anchor = target.partition("#")
        path = posixpath.normpath(posixpath.join(posixpath.dirname(place), path)).removeprefix("docs/")
        if files.get_file_from_path(path) is None:
            return text
        path = posixpath.relpath(path, posixpath.dirname(uri) or ".")
        return f"[{text}]({path}{'#' + anchor if anchor else ''})"

    pieces = re.split(r"(^```.*?^```$)", markdown, flags=re.M | re.S)  # code blocks stand at odd places
    return "".join(piece if i % 2 else LINK.sub(lead, piece) for i, piece in enumerate(pieces))


def navigation(entries) -> list[str]:
    """The paths in mkdocs' nav, in order."""
    if isinstance(entries, str):
        return [entries]
    values = entries.values() if isinstance(entries, dict) else entries
    return [path for value in values for path in navigation(value)]


def generated_pages() -> dict[str, str]:
    """{path in the site: markdown}"""
    return {"reference/cli.md": cli_page(), "reference/python.md": python_page()}


# --- the command line -----------------------------------------------------------------------------------------------


def cli_page() -> str:
    """Every command with its arguments, as `cohort COMMAND --help` has them."""
    from cohort_gnn.launch.main import build_parser

    sections = [_command(parser, text) for parser, text in commands(build_parser())]
    return "# Command line\n\nWritten from the code; `cohort COMMAND --help` says the same.\n\n" + "\n".join(sections)


def commands(parser: argparse.ArgumentParser, text: str = ""):
    """(parser, its line in the list of commands) of each command that does something, in the order of --help."""
    subparsers = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not subparsers:
        yield parser, text
    for action in subparsers:
        lines = {choice.dest: choice.help for choice in action._choices_actions}
        for name, child in action.choices.items():
            yield from commands(child, lines.get(name, ""))


def _command(parser: argparse.ArgumentParser, text: str) -> str:
    parts = [f"## {parser.prog}", _prose(parser.description or text)]
    for group in parser._action_groups:
        rows = [_argument(parser, action) for action in group._group_actions if action.help is not argparse.SUPPRESS]
        rows = [row for row in rows if not row.startswith("| `-h")]
        if rows:
            parts.append(f"| {group.title} | |\n|---|---|\n" + "\n".join(rows))
    if parser.epilog:
        parts.append(_prose(parser.epilog))
    return "\n\n".join(parts) + "\n"


def _argument(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    """A row of the table: what to write, what it means."""
    values = action.metavar or ("|".join(map(str, action.choices)) if action.choices else action.dest.upper())
    values = " ".join(values) if isinstance(values, tuple) else values
    if not action.option_strings:
        names = [values]
    elif action.nargs == 0:
        names = list(action.option_strings)
    else:
        names = [f"{name} {values}" for name in action.option_strings]
    text = _prose(parser._get_formatter()._expand_help(action) if action.help else "")
    default = action.default
    if default is not None and default is not False and action.option_strings and "default" not in text:
        default = (
            ",".join(f"{each:g}" if isinstance(each, float) else str(each) for each in default)
            if isinstance(default, list | tuple)
            else default
        )
        text += f"{'; ' if text else ''}default: {default}"
    if action.required and action.option_strings:
        text += f"{'; ' if text else ''}required"
    cells = [", ".join(f"`{name}`" for name in names), text]
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


# --- Python ---------------------------------------------------------------------------------------------------------


def python_page() -> str:
    """A line for mkdocstrings for everything that the packages export, where it is defined."""
    parts = ["# Python"]
    for package in PACKAGES:
        module = importlib.import_module(package)
        parts += [f"## {package}", _prose(inspect.getdoc(module))]
        for name in sorted(module.__all__, key=str.lower):
            thing = getattr(module, name)
            home = f"{thing.__module__}.{name}" if hasattr(thing, "__module__") else f"{package}.{name}"
            parts += [_definition(home, f"{package}.{name}")]
            parts += [_definition(other, other.rpartition(".")[2]) for other in BESIDE.get(name, [])]
    return "\n\n".join(parts) + "\n"


def _definition(home: str, name: str) -> str:
    return f"::: {home}\n    options:\n      heading: {name}\n      toc_label: {name}"


def _prose(text: str) -> str:
    """reStructuredText's ``code`` as markdown's, and what markdown would take for HTML spelled out."""
    return re.sub(r"``(.+?)``", r"`\1`", text).replace("<", "&lt;").strip()
