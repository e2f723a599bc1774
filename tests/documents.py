"""The repository's pages as data: code blocks, headings, links; and the commands in them."""

import argparse
import importlib.util
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]
OUTSIDE = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "HACKING.md", "bench/README.md"]
FORMATS = ["dataset/FORMAT.md", "ibp/FORMAT.md", "cache/FORMAT.md"]


@dataclass
class Block:
    """A fenced block of a page. Its first comments may say what it is for.

    `# needs ...`: where it cannot run, so that only its commands are checked; `# name.py`: a file to be written.
    """

    page: Path
    line: int
    language: str
    text: str

    @property
    def needs(self) -> str:
        """What a machine must have to run it; empty: nothing."""
        found = re.search(r"^# needs (.+)$", self.text, re.M)
        return found[1] if found else ""

    @property
    def file(self) -> str:
        """The name of the file that it shows; empty: it is run as it stands."""
        found = re.match(r"# ([\w.-]+\.\w+)\n", self.text)
        return found[1] if found else ""

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages() -> list[Path]:
    """Every page of the repository."""
    found = sorted((ROOT / "docs").rglob("*.md"))
    assert len(found) > 10
    return [*(ROOT / name for name in OUTSIDE + FORMATS), *found]


def blocks(page: Path) -> list[Block]:
    """The page's fenced blocks, in order."""
    text = page.read_text()
    found = re.finditer(r"^```([^\n`]*)\n(.*?)^```$", text, re.M | re.S)
    return [Block(page, text.count("\n", 0, match.start()) + 1, match[1], match[2]) for match in found]


def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    return re.sub(r"^```[^\n`]*\n.*?^```$", "", page.read_text(), flags=re.M | re.S)


def anchors(page: Path) -> set[str]:
    """The anchors of the page's headings, as GitHub and mkdocs make them."""
    titles = re.findall(r"^#+ (.+)$", prose(page), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def links(page: Path) -> list[tuple[str, str]]:
    """(path, anchor) of each link to a file, or to a heading of this page (path "")."""
    text = re.sub(r"`[^`\n]*`", "", prose(page))
    targets = re.findall(r"\]\(([^()\s]+)\)", text)
    return [(path, anchor) for path, _, anchor in (target.partition("#") for target in targets) if ":" not in path]


def commands(text: str, program: str) -> list[list[str]]:
    """The arguments of each call of `program` in a piece of bash, also as the argument of another one."""
    text = re.sub(r"(^|[ \t])#.*$", "", text.replace("\\\n", " "), flags=re.M)
    text = re.sub(r"\$\{?\w+\}?", "0", text)  # a variable may be a number or a name; 0 is both
    lexer = shlex.shlex(text, posix=True, punctuation_chars=";&|()<>\n")
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t", True, ""
    found, call = [], None
    for token in lexer:
        if token.strip(";&|()<>\n") == "":
            call = None
        elif call is None and token == program:
            found.append(call := [])
        elif call is not None:
            call.append(token)
    return found


def refusal(parser: argparse.ArgumentParser, arguments: list[str]) -> str:
    """What the parser has against a command line; empty: nothing."""
    texts = []
    parsers = [parser]
    while parsers:  # each parser of the tree says it by its own error()
        one = parsers.pop()
        one.error = lambda text: (texts.append(text), (_ for _ in ()).throw(SystemExit(2)))[0]
        choices = [action.choices for action in one._actions if isinstance(action, argparse._SubParsersAction)]
        parsers += [child for each in choices for child in each.values()]
    try:
        parser.parse_args(arguments)
    except SystemExit:
        return "; ".join(texts)
    return ""


def unknown_options(parser: argparse.ArgumentParser, arguments: list[str]) -> list[str]:
    """Subcommands and options that there are not, in a command of running text: it may be incomplete; a|b: either."""
    parsers, unknown = [parser], []
    for argument in arguments:
        children = next((a.choices for a in parsers[0]._actions if isinstance(a, argparse._SubParsersAction)), None)
        options = [option for each in parsers for option in each._option_string_actions]
        names = argument.rstrip(",;").split("|")
        if argument.startswith("--"):
            unknown += [name for name in names if name not in options]
        elif children is not None:
            if missing := [name for name in names if name not in children]:
                return missing
            parsers = [children[name] for name in names]
    return unknown


def module(path: Path) -> ModuleType:
    """A Python file that is in no package."""
    name = f"documents_{path.stem}"
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))  # it may import others beside it, as one that is run
    spec = importlib.util.spec_from_file_location(name, path)
    sys.modules[name] = loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded
