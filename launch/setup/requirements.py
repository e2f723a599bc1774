"""Reads the requirement lists of pyproject.toml, the only place they are written down.

    requirements.py list GROUP...      one requirement a line
    requirements.py missing GROUP...   those this interpreter does not meet

"project" names the run-time dependencies; every other group is one of [dependency-groups].
"""

import importlib.util
import re
import sys
import tomllib
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def requirements(groups: list[str]) -> list[str]:
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())
    lists = {"project": table["project"]["dependencies"], **table["dependency-groups"]}
    return [line for group in groups for line in lists[group]]


def is_met(line: str) -> bool:
    name = re.split(r"[^\w.-]", line, maxsplit=1)[0]
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    packaging = "packaging" if importlib.util.find_spec("packaging") else "pip._vendor.packaging"
    specifiers = importlib.import_module(f"{packaging}.specifiers")
    return specifiers.SpecifierSet(line.removeprefix(name)).contains(version, prereleases=True)


def main() -> None:
    action, groups = sys.argv[1], sys.argv[2:]
    for line in requirements(groups):
        if action == "list" or not is_met(line):
            print(line)


if __name__ == "__main__":
    main()
