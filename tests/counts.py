"""How often the product is written twice, for graphs of one node type and of several: python tests/counts.py [COMMIT]

Prints, for the product's files at a commit (default HEAD; tests, bench, docs and examples are no part of it):

- signatures whose annotations join both kinds, such as `Dataset | HeteroDataset`;
- isinstance() forks between the kinds, and tests of `types`, `typed` or `is_typed` in Python;
- C++ tests of the same, and structs of which there is one for each kind (TypedBatch);
- pairs of Python modules that import each other;
- files that name each option of the sampler: the fewest, the median and the most;
- Python lines on mypy's ignore list;
- the longest files and the fullest folders.
"""

import ast
import fnmatch
import io
import re
import statistics
import subprocess
import sys
import tarfile
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[1]
OUTSIDE = {"tests", "bench", "docs", "examples", "findings"}
CPP = {".h", ".cuh", ".cc", ".cu"}
KINDS = {"Data", "Dataset", "Batch", "Graph", "Source", "SampledGNN", "HeteroData", "HeteroDataset", "HeteroBatch"}
KINDS |= {"TypedGraph", "TypedBatch", "TypedGNN", "HeteroGraph", "TypedSource"}
SEVERAL = {kind for kind in KINDS if kind.startswith(("Hetero", "Typed"))}
FORK = re.compile(r"\b(types|typed|is_typed|relations|num_types)\b")
CPP_FORK = re.compile(
    r"\b(?:if|while) \(.*\b(?:\w*typed\w*|num_types|types\(\)|has_types)\b|\?.*\btyped\b", re.IGNORECASE
)


def files_of(commit: str) -> dict[PurePosixPath, str]:
    """Path -> text, of the product's source files."""
    packed = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, capture_output=True).stdout
    found = {}
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        for member in archive:
            path = PurePosixPath(member.name)
            is_source = path.suffix in {".py", *CPP} or path.name == "pyproject.toml"
            if member.isfile() and is_source and path.parts[0] not in OUTSIDE:
                file = archive.extractfile(member)
                assert file is not None
                found[path] = file.read().decode()
    return found


def names_in(node: ast.AST) -> set[str]:
    texts = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    words = {word for text in texts for word in re.findall(r"\w+", text)}
    names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    return words | names | {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}


def joins_kinds(annotation: ast.AST | None) -> bool:
    """Whether an annotation has a union of the kinds."""
    if annotation is None:
        return False
    names = names_in(annotation) & KINDS
    return bool(names & SEVERAL) and bool(names - SEVERAL)


def signatures(tree: ast.AST) -> int:
    """Functions of which a parameter or the result may be of either kind."""
    count = 0
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg]
            count += any(joins_kinds(each.annotation) for each in every if each) or joins_kinds(node.returns)
    return count


def isinstance_forks(tree: ast.AST) -> int:
    return sum(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "isinstance"
        and bool(names_in(node.args[1]) & KINDS)
        for node in ast.walk(tree)
    )


def type_forks(tree: ast.AST) -> int:
    """`if types`, `types is None` and alike."""
    tests = [node.test for node in ast.walk(tree) if isinstance(node, ast.If | ast.IfExp | ast.While)]
    return sum(any(FORK.fullmatch(name) for name in names_in(test)) for test in tests)


def module_of(path: PurePosixPath) -> str:
    parts = [*path.parts[:-1], path.stem] if path.stem != "__init__" else [*path.parts[:-1]]
    return ".".join(parts)


def is_for_checkers(node: ast.AST) -> bool:
    """Whether this is `if TYPE_CHECKING:`, which no run enters."""
    return isinstance(node, ast.If) and "TYPE_CHECKING" in names_in(node.test)


def circles(trees: dict[PurePosixPath, ast.AST]) -> list[tuple[str, str]]:
    """Modules that import each other, also within functions; a package and its own modules are none."""
    imports: dict[str, set[str]] = defaultdict(set)
    modules = {module_of(path) for path in trees}
    for path, tree in trees.items():
        checked = {each for node in ast.walk(tree) if is_for_checkers(node) for each in ast.walk(node)}
        for node in ast.walk(tree):
            if (
                node not in checked
                and isinstance(node, ast.ImportFrom)
                and node.module
                and node.module.startswith("cohort_gnn.")
            ):
                base = node.module.removeprefix("cohort_gnn.")
                base = base if base in modules or not base.startswith("nn") else f"trainer.{base}"
                imports[module_of(path)] |= {base, *(f"{base}.{name.name}" for name in node.names)} & modules
    pairs = {tuple(sorted((a, b))) for a, used in imports.items() for b in used if a != b and a in imports.get(b, ())}
    return sorted((first, second) for first, second in pairs if not second.startswith(f"{first}."))


def option_names(files: dict[PurePosixPath, str]) -> list[str]:
    """Fields of SamplerSpec and what it is made of."""
    tree = ast.parse(files[PurePosixPath("spec/run.py")])
    classes = [each for each in tree.body if isinstance(each, ast.ClassDef) and each.name == "SamplerSpec"]
    return [
        each.target.id
        for each in classes[0].body
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    ]


def ignored(files: dict[PurePosixPath, str]) -> tuple[int, int]:
    """Python lines on mypy's ignore list, and all."""
    overrides = tomllib.loads(files[PurePosixPath("pyproject.toml")])["tool"]["mypy"]["overrides"]
    patterns = [name for each in overrides if each.get("ignore_errors") for name in each["module"]]
    lines = {path: text.count("\n") for path, text in files.items() if path.suffix == ".py"}

    def is_ignored(path: PurePosixPath) -> bool:
        name = f"cohort_gnn.{module_of(path)}".replace("cohort_gnn.trainer.nn", "cohort_gnn.nn")
        return any(fnmatch.fnmatch(name, pattern) or name == pattern.removesuffix(".*") for pattern in patterns)

    return sum(count for path, count in lines.items() if is_ignored(path)), sum(lines.values())


def cpp_counts(files: dict[PurePosixPath, str]) -> Iterator[tuple[int, int]]:
    """Of each C++ file: tests of the kind of graph, and types named Typed or Hetero."""
    for path, text in files.items():
        if path.suffix in CPP:
            types = re.findall(r"^(?:struct|class) (?:Typed|Hetero)\w* (?:final )?[:{]", text, re.MULTILINE)
            yield len(CPP_FORK.findall(text)), len(types)


def main(commit: str = "HEAD") -> None:
    files = files_of(commit)
    trees: dict[PurePosixPath, ast.AST] = {
        path: ast.parse(text) for path, text in files.items() if path.suffix == ".py"
    }
    cpp_forks, cpp_types = (sum(column) for column in zip(*cpp_counts(files), strict=True))
    names = option_names(files)
    counts = sorted(sum(bool(re.search(rf"\b{name}\b", text)) for text in files.values()) for name in names)
    unchecked, lines = ignored(files)
    print(f"{commit}:")
    print(f"{sum(map(signatures, trees.values())):6} signatures that take either kind of graph")
    print(f"{sum(map(isinstance_forks, trees.values())):6} isinstance() forks between the kinds")
    print(f"{sum(map(type_forks, trees.values())):6} tests of types in Python")
    print(f"{cpp_forks:6} tests of types in C++; types named Typed or Hetero: {cpp_types}")
    print(f"{len(circles(trees)):6} pairs of modules that import each other: {circles(trees)}")
    spread = f"median of {len(names)}; {counts[0]} to {counts[-1]}"
    print(f"{statistics.median(counts):6g} files that name an option of the sampler ({spread})")
    print(f"{100 * unchecked / lines:6.0f} % of {lines:,} Python lines on mypy's ignore list")
    print(f"longest files: {largest({path: text.count(chr(10)) for path, text in files.items()})}")
    print(f"fullest folders: {largest(Counter(path.parent for path in files))}")


def largest(sizes: dict[PurePosixPath, int]) -> str:
    first = sorted(sizes.items(), key=lambda each: -each[1])[:5]
    return ", ".join(f"{path} {size}" for path, size in first)


if __name__ == "__main__":
    main(*sys.argv[1:])
