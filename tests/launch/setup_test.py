"""launch/setup: what it says when something is missing, and the totals of tests/run.sh."""

import os
import re
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(*command: str | Path, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, cwd="/", env={**os.environ, **environment}
    )


def test_cmake_asks_for_the_python_of_the_package():
    package = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    (asked,) = re.findall(r"find_package\(Python ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())
    assert package == f">={asked}"


def test_the_recipe_of_conda_asks_for_the_same_versions():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {"pytorch": "torch", "pytorch_geometric": "torch_geometric", "msgspec-python": "msgspec"}
    recipe = (ROOT / "launch/conda/recipe.yaml").read_text().partition("  run:\n")[2].partition("\n\n")[0]
    found = {names.get(name, name): bound for name, bound in re.findall(r"- (\S+) (>=[\d.]+)", recipe)}
    assert found.pop("python") == project["requires-python"]
    assert sorted(name + bound for name, bound in found.items()) == sorted(project["dependencies"])


@pytest.mark.parametrize("script", ["launch/quickstart.sh", "launch/wheel.sh", "tests/run.sh"])
def test_an_interpreter_that_does_not_exist_is_named(script):
    result = run("bash", ROOT / script, COHORT_PYTHON="/nowhere/python3")
    assert result.returncode == 1
    assert "COHORT_PYTHON=/nowhere/python3 is not a program" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--to", "x"], "unknown option: --to"),
        (["--out"], "--out: expected a folder, found nothing"),
        (["--machine", "arm64"], "--machine: expected x86_64 or aarch64, found arm64"),
        (["/nowhere/python3"], "/nowhere/python3 is not a program"),
    ],
)
def test_arguments_of_the_wheel_script_are_checked_first(arguments, words):
    result = run("bash", ROOT / "launch/wheel.sh", *arguments)
    assert result.returncode == 1 and words in result.stderr and result.stdout == ""


def test_a_release_is_of_a_version_with_a_date(tmp_path):
    """A checkout that says what it is, with one thing wrong after the other."""
    for name in ("launch/release.sh", "CMakeLists.txt", "base/version.py", "CITATION.cff"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    for version in ("3.11", "3.12"):
        (tmp_path / version).write_text(f"#!/bin/sh\necho {version.replace('.', '')}\n")
        (tmp_path / version).chmod(0o755)
    script, old, new = tmp_path / "launch/release.sh", tmp_path / "3.11", tmp_path / "3.12"
    assert "3.12: expected Python 3.11, found 3.12" in run("bash", script, new, old).stderr
    (version,) = re.findall(r"^project\(cohort VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text(), re.M)
    changelog = tmp_path / "CHANGELOG.md"
    changelog.write_text(f"# Changelog\n\n## {version} (unreleased)\n\nNew.\n")
    assert "(YEAR-MONTH-DAY)" in run("bash", script, old, new).stderr
    changelog.write_text(changelog.read_text().replace("unreleased", "2031-01-02"))
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    assert "the checkout has changes" in run("bash", script, old, new).stderr
    (tmp_path / "base/version.py").write_text('__version__ = "0.0.9"\n')
    assert f"base/version.py: expected {version}" in run("bash", script, old, new).stderr


@pytest.mark.skipif(sys.version_info < (3, 11), reason="reading pyproject.toml on Python 3.10 needs pip")
def test_a_given_interpreter_without_packages_gets_the_whole_list(tmp_path):
    venv.create(tmp_path / "poor", with_pip=False)
    result = run("bash", ROOT / "tests/run.sh", COHORT_PYTHON=str(tmp_path / "poor/bin/python"), PYTHONPATH="")
    assert result.returncode == 1
    for name in ("torch>=2.10", "torch_geometric", "numpy", "rich", "nanobind", "pytest", "hypothesis"):
        assert name in result.stderr
    assert "-m pip install 'torch>=2.10'" in result.stderr


def test_the_virtual_environment_gets_the_command_and_the_package(tmp_path):
    venv.create(tmp_path / ".venv", with_pip=False)
    for file in ("build/bin/cohort", "build/python/cohort_gnn/__init__.py"):
        (tmp_path / file).parent.mkdir(parents=True)
        (tmp_path / file).write_text("place = __file__\n")
    script = f"source '{ROOT}/launch/setup/setup.sh'; root=$1 build=$1/build python=$1/.venv/bin/python; link_command"
    assert run("bash", "-euc", script, "-", tmp_path).returncode == 0
    assert (tmp_path / ".venv/bin/cohort").resolve() == tmp_path / "build/bin/cohort"
    found = run(tmp_path / ".venv/bin/python", "-c", "import cohort_gnn as cohort; print(cohort.place)", PYTHONPATH="")
    assert found.stdout.strip() == str(tmp_path / "build/python/cohort_gnn/__init__.py"), found.stderr


@pytest.mark.parametrize("status", [0, 3])
def test_packages_are_installed_beside_the_build(tmp_path, status):
    """A base interpreter whose pip writes what it was asked for, and fails when it was asked for torch."""
    fake = tmp_path / "python"
    fake.write_text(
        f"""#!/bin/bash
case "$*" in
  -c* | *requirements.py*) exec {sys.executable} "$@" ;;
  *"-m venv"*) mkdir -p {tmp_path}/.venv/bin && cp "$0" {tmp_path}/.venv/bin/python ;;
  *"-m pip"*torch*) sleep 0.5; echo no torch here; echo "$*" >> {tmp_path}/asked; exit {status} ;;
  *"-m pip"*) echo "$*" >> {tmp_path}/asked ;;
esac
"""
    )
    fake.chmod(0o755)
    script = f"""
source '{ROOT}/launch/setup/setup.sh'
logs=$1 base_python=$1/python
cp -r "$root/launch" "$root/pyproject.toml" "$1"; root=$1
make_venv; echo building >> "$1/asked"; end_make_venv; make_venv
"""
    result = run("bash", "-euc", script, "-", tmp_path)
    asked = (tmp_path / "asked").read_text().splitlines()
    assert "nanobind" in asked[0] and "torch" not in asked[0]
    assert asked[1] == "building" and "torch>=2.10" in asked[2] and "nanobind" in asked[2] and len(asked) == 3
    assert result.returncode == bool(status)
    assert (tmp_path / ".venv/.cohort").exists() == (status == 0)
    if status == 0:
        assert "Python packages: unchanged" in result.stdout
    else:
        assert "failed with exit status 3: installing Python packages" in result.stderr
        assert "| no torch here" in result.stderr and "cure: check the network" in result.stderr


@pytest.mark.parametrize(("release", "good"), [("11.8", False), ("12.4", False), ("12.5", True), ("13.0", True)])
def test_a_cuda_compiler_is_taken_from_12_5_on(tmp_path, release, good):
    nvcc = tmp_path / "nvcc"
    nvcc.write_text(f"#!/bin/sh\necho 'Cuda compilation tools, release {release}, V{release}.1'\n")
    nvcc.chmod(0o755)
    result = run("bash", "-c", f"source {ROOT}/launch/setup/setup.sh; is_nvcc {nvcc}")
    assert (result.returncode == 0) == good, result.stderr


def test_missing_lists_what_is_absent_or_too_old(tmp_path):
    for name, version in (("numpy", "1.0"), ("scipy", "99.1"), ("rich", "13.0")):
        info = tmp_path / f"{name}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    result = run(sys.executable, ROOT / "launch/setup/requirements.py", "missing", "project", PYTHONPATH=str(tmp_path))
    assert result.returncode == 0, result.stderr
    names = [line.split(">")[0] for line in result.stdout.splitlines()]
    assert "numpy" in names and "scipy" not in names and "rich" not in names


GOOGLETEST = """<testsuites><testsuite>
<testcase name="a" status="run" result="completed"/><testcase name="b" status="notrun" result="suppressed"/>
<testcase name="c" status="run" result="completed"><failure message="x"/></testcase></testsuite></testsuites>"""
PYTEST = """<testsuites><testsuite><testcase name="a"/>
<testcase name="b"><skipped message="absent"/></testcase></testsuite></testsuites>"""


@pytest.mark.parametrize(
    ("cpp", "failed", "total", "status"),
    [
        (GOOGLETEST, ["failed=ctest cpu"], "3 passed, 1 failed, 2 skipped", 1),
        ("<testsuites/>", [], "2 passed, 0 failed, 1 skipped", 0),
        ("<testsuites/>", ["failed=pytest"], "2 passed, 1 failed, 1 skipped", 1),
    ],
)
def test_the_total_counts_every_report(tmp_path, cpp, failed, total, status):
    (tmp_path / "cpp").mkdir()
    (tmp_path / "cpp/base_test.xml").write_text(cpp)
    (tmp_path / "cpp_asan").mkdir()
    (tmp_path / "cpp_asan/base_test.xml").write_text(
        '<testsuites><testcase name="OfAPreset" status="run"/></testsuites>'
    )
    (tmp_path / "pytest_cpu.xml").write_text(PYTEST)
    (tmp_path / "pytest_gpu.xml").write_text("<testsuites/>")
    result = run(sys.executable, ROOT / "tests/total.py", tmp_path, *failed, "not_run=GPU tests")
    assert result.returncode == status
    assert result.stdout.splitlines()[-1] == total
    assert "cohort: not run: GPU tests" in result.stdout


def test_a_choice_of_no_python_test_is_a_failure(tmp_path):
    (tmp_path / "pytest_cpu.xml").write_text("<testsuites/>")
    assert run(sys.executable, ROOT / "tests/total.py", tmp_path).returncode == 1
