"""What mkdocs needs beside the pages in docs/ (mkdocs.yml names this file as its hook).

The two reference pages are written here from the code: the tree of argparse, and the docstrings of what the packages
export. Pages of the navigation that lie elsewhere in the repository (formats, changes) join the site from there, and
links are led to where their targets are in the site.
"""

import argparse
import importlib
import inspect
import posixpath
import re
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ["cohort", "cohort.nn", "cohort.dataset", "cohort.ibp"]
BESIDE = {
    "NeighborLoader": ["cohort.trainer.loader.batch.Batch", "cohort.trainer.loader.stats.LoaderStats"]
}  # what a class hands out
LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
SECTION = re.compile(r"(Args|Attributes|Returns|Raises):$")


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
    from cohort.launch.main import build_parser

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
    """Signature and docstring of everything that the packages export."""
    parts = ["# Python", "Written from the docstrings."]
    for package in PACKAGES:
        module = importlib.import_module(package)
        parts += [f"## {package}", _docstring(module)]
        for name in sorted(module.__all__, key=str.lower):
            parts += _definition(f"{package}.{name}", getattr(module, name), 3)
            for place in BESIDE.get(name, []):
                home, _, other = place.rpartition(".")
                parts += _definition(other, getattr(importlib.import_module(home), other), 3)
    return "\n\n".join(parts) + "\n"


def _definition(name: str, thing, level: int) -> list[str]:
    parts = [f"{'#' * level} {name}", f"```python\n{_signature(name, thing)}\n```", _docstring(thing)]
    if inspect.isclass(thing):
        for member, value in vars(thing).items():
            function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
            public = not member.startswith("_") and callable(function) and not inspect.isclass(function)
            if public and inspect.getdoc(function):
                shown = value if isinstance(value, property) else function
                parts += _definition(f"{name.rpartition('.')[2]}.{member}", shown, level + 1)
    return parts


def _signature(name: str, thing) -> str:
    """As in the source; one parameter a line where it is long, and without those whose names begin with "_"."""
    short = name.rpartition(".")[2]
    if isinstance(thing, property):
        return short
    try:
        signature = inspect.signature(thing)
    except ValueError:
        return short
    kept = [parameter for parameter in signature.parameters.values() if not parameter.name.startswith("_")]
    texts = [_parameter(parameter) for parameter in kept]
    starred = [parameter.kind is inspect.Parameter.KEYWORD_ONLY for parameter in kept]
    if any(starred) and not any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in kept):
        texts.insert(starred.index(True), "*")
    line = f"{short}({', '.join(texts)})"
    return line if len(line) <= 100 else f"{short}(\n    " + ",\n    ".join(texts) + ",\n)"


def _parameter(parameter: inspect.Parameter) -> str:
    annotation = getattr(parameter.annotation, "__forward_arg__", parameter.annotation)
    bare = parameter.replace(annotation=parameter.empty, default=parameter.empty)
    if isinstance(annotation, str):  # from __future__ import annotations: text, which would be quoted
        shown = f"{bare}: {annotation}"
    else:
        shown = str(bare.replace(annotation=annotation)).replace("collections.abc.", "")
    if parameter.default is parameter.empty:
        return shown
    default = repr(parameter.default)
    if callable(parameter.default) or len(default) > 60:  # an address, or all members of an object
        default = "..."
    return f"{shown}={default}" if annotation is parameter.empty else f"{shown} = {default}"


def _docstring(thing) -> str:
    """A docstring as markdown: sections become lists, examples code blocks."""
    parts, lines = [], inspect.cleandoc(thing.__doc__ or "").splitlines()
    while lines:
        section = SECTION.match(lines[0])
        end = next((i for i, line in enumerate(lines) if i and line and not line.startswith(" ")), len(lines))
        if section:
            parts.append(f"**{section[1]}**\n\n{_entries(lines[1:end])}")
        elif lines[0].startswith(">>>"):
            end = next((i for i, line in enumerate(lines) if not line.startswith(">>>")), len(lines))
            parts.append("```python\n" + "\n".join(lines[:end]) + "\n```")
        else:
            end = next((i for i, line in enumerate(lines) if not line or SECTION.match(line)), len(lines))
            parts.append(_prose("\n".join(lines[:end])))
        lines = lines[max(end, 1) :]
    return "\n\n".join(part for part in parts if part)


def _entries(lines: list[str]) -> str:
    """ "name: what" with lines that go on below it, as a list; other text stays text."""
    text = textwrap.dedent("\n".join(lines)).strip()
    entries = re.split(r"\n(?=\S)", text)
    if not all(re.match(r"[\w, *]+:\s", entry) for entry in entries):
        return _prose(text)
    pairs = (entry.partition(":") for entry in entries)
    return "\n".join(f"- `{name}`: {' '.join(_prose(what).split())}" for name, _, what in pairs)


def _prose(text: str) -> str:
    """reStructuredText's ``code`` as markdown's, and what markdown would take for HTML spelled out."""
    return re.sub(r"``(.+?)``", r"`\1`", text).replace("<", "&lt;").strip()
