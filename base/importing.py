"""Names of the user's own classes."""

import ast
import importlib
import os
import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

from cohort_gnn.base.errors import CohortError

_imported: list[str] = []  # what imported() has been asked for


def has_imported() -> bool:
    """Whether this process has run code of the user's."""
    return bool(_imported)


def _refused(place: str, name: str, actual: str) -> CohortError:
    hint = "modules are looked for in this Python's packages, then in the current folder"
    what = "function" if place == "--loss" else "Class"
    return CohortError(f"{place} {name}", f"package.module:{what}", actual, hint)


def imported(place: str, name: str) -> Any:
    """Imports "package.module:Name". Modules in the current folder are found, too, also when they import each other
    later. The folder comes last on sys.path, so that a file in it does not hide another module.

    Raises:
        CohortError: there is none.
    """
    module, _, attribute = name.partition(":")
    _imported.append(name)
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise _refused(place, name, str(error)) from error


def demand_named(place: str, name: str) -> None:
    """Looks whether imported() can find "package.module:Name", without running the module.

    Raises:
        CohortError: there is no such module, its source is no Python, or nothing in its source has this name.
    """
    module, _, attribute = name.partition(":")
    if module.partition(".")[0] in sys.builtin_module_names:
        return
    spec = _spec_of(module)
    if not spec:
        raise _refused(place, name, f"No module named '{module}'")
    if not spec.origin or not spec.origin.endswith(".py"):
        return
    try:
        names = _names_in(ast.parse(Path(spec.origin).read_bytes(), spec.origin))
    except (SyntaxError, ValueError) as error:
        message = error.msg if isinstance(error, SyntaxError) else error
        raise _refused(place, name, f"{spec.origin}: {message}") from error
    if attribute not in names and not names & {"*", "__getattr__"}:  # from which it may come
        raise _refused(place, name, f"no {attribute} in {spec.origin}")


def _spec_of(module: str) -> ModuleSpec | None:
    path, spec = [*sys.path, os.getcwd()], None
    parts = module.split(".")
    for depth in range(1, len(parts) + 1):
        spec = PathFinder.find_spec(".".join(parts[:depth]), path)
        if not spec:
            return None
        path = list(spec.submodule_search_locations or [])
    return spec


def _names_in(tree: ast.AST) -> set[str]:
    """All that the source gives a name, at any depth."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.alias):
            names.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names
