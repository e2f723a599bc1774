"""Formatting, lint and the size of functions."""

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = "base spec ibp dataset channel cache sampler trainer launch tests bench docs examples".split()
PRINTING = {  # parts of commands: they print their results and their errors
    "base/log.py",
    "dataset/cli.py",
    "dataset/partitioning/cli.py",
    "ibp/cli.py",
    "launch/main.py",
    "launch/doctor.py",
    "launch/*/command.py",
    "launch/data/derive.py",
    "launch/data/prepare.py",
    "launch/data/shard.py",
    "launch/plan/table.py",
    "launch/run/inspect.py",
    "launch/run/train.py",
    "launch/setup/contents.py",
    "launch/setup/requirements.py",
    "launch/tune/output.py",
    "trainer/program.py",
    "trainer/bench/digest.py",
    "trainer/predict/program.py",
    "trainer/serve/program.py",
}
CPP = {".h", ".cuh", ".cc", ".cu", ".cpp"}
MAX_FUNCTION_LINES = 80
CLANG_FORMAT_MAJOR = "14"  # versions format differently; pyproject.toml pins it


def sources(suffixes: set[str]) -> list[Path]:
    paths = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*"))
    found = sorted(path for path in paths if path.suffix in suffixes and "__pycache__" not in path.parts)
    assert found
    return found


def program(name: str) -> str:
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed: {sys.executable} -m pip install {name}")
    return found


def run(*command: str | Path) -> subprocess.CompletedProcess:
    return subprocess.run([str(part) for part in command], cwd=ROOT, capture_output=True, text=True)


def function_sizes(text: str) -> dict[str, int]:
    """Lines of each Python function, by name and line."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = (node for node in ast.walk(ast.parse(text)) if isinstance(node, kinds))
    return {f"{node.name}, line {node.lineno}": node.end_lineno - node.lineno + 1 for node in nodes}


def block_sizes(text: str) -> dict[str, int]:
    """Lines of each C++ block that is no namespace and no type, by its opening line: functions among them."""
    blank = r'R"(\w*)\([\s\S]*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'|//[^\n]*'  # literals and comments
    bare = re.sub(blank, lambda match: "\n" * match[0].count("\n"), text)
    no_function = r"\s*(?:template <.*> )?(?:namespace|struct|class|union|enum|extern)\b"
    sizes, opened = {}, []
    for number, line in enumerate(bare.splitlines(), 1):
        for brace in re.findall("[{}]", line):
            if brace == "{":
                opened.append((number, line))
            else:
                start, first = opened.pop()
                if not re.match(no_function, first):
                    sizes[f"{first.strip()} line {start}"] = number - start + 1
    return sizes


def prints(text: str) -> bool:
    calls = [node.func for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    return "print" in {func.id for func in calls if isinstance(func, ast.Name)}


def test_clang_format():
    formatter = program("clang-format")
    version = run(formatter, "--version").stdout
    if f"version {CLANG_FORMAT_MAJOR}." not in version:
        pytest.skip(f"clang-format {CLANG_FORMAT_MAJOR} is needed, found {version.strip()}")
    result = run(formatter, "--dry-run", "-Werror", *sources(CPP))
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("arguments", [["check"], ["format", "--check"]], ids=["check", "format"])
def test_ruff(arguments):
    result = run(program("ruff"), *arguments, "--no-cache", ".")
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("suffixes", "measure"), [({".py"}, function_sizes), (CPP, block_sizes)], ids=["python", "cpp"]
)
def test_functions_are_short(suffixes, measure):
    long = {}
    for path in sources(suffixes):
        sizes = measure(path.read_text())
        long.update({f"{path.relative_to(ROOT)}: {k}": size for k, size in sizes.items() if size > MAX_FUNCTION_LINES})
    assert long == {}


def test_library_code_prints_nothing():
    """It logs (base/log.py); what prints is the commands' own part."""
    rooms = ("base", "ibp", "dataset", "channel", "cache", "spec", "trainer", "launch")
    paths = (path for path in sources({".py"}) if path.relative_to(ROOT).parts[0] in rooms)
    printing = {str(path.relative_to(ROOT)) for path in paths if prints(path.read_text())}
    assert {path for path in printing if not any(Path(path).match(pattern) for pattern in PRINTING)} == set()
    assert {pattern for pattern in PRINTING if not any(Path(path).match(pattern) for path in printing)} == set()


def test_the_measures_see_a_long_function():
    body = "  x();\n" * 90
    assert list(block_sizes(f"namespace a {{\nvoid f(int a,\n       int b) {{\n{body}}}\n}}\n").values()) == [92]
    assert list(block_sizes('void f() {\n  g("{", R"({\n)", \'{\');  // {\n}\n').values()) == [4]
    assert list(function_sizes("def f():\n" + "    x()\n" * 90).values()) == [91]
