"""Cohort without its checkout: installed into an environment of its own, it trains, and does what a page says.

The build's installation rules are those of a wheel. `tests/run.sh --all` builds the wheel, too, and installs it; and it
has pip install the checkout as on a machine without a CUDA compiler.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import documents
import pytest
from documents import ROOT
from installed import Installed, add_command, environment
from processes import ALL_TESTS

from cohort_gnn.ibp import _native

BUILD = Path(_native.__file__).parents[3]  # of BUILD/python/cohort_gnn/ibp
PAGE = ROOT / "docs/how-to/ibp.md"
CMAKE = shutil.which("cmake", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
ONE_EPOCH = ["--epochs", 1, "--fanout", "5,3", "--hidden", 16, "--batch-size", 64, "--device", "cpu"]
MAPPED = "import {}; print(*{{line.split()[-1] for line in open('/proc/self/maps') if '.so' in line}}, sep='\\n')"
NATIVE = ", ".join(f"cohort_gnn.{name}._native" for name in ("ibp", "cache", "dataset", "trainer.loader", "nn"))

pytestmark = [
    pytest.mark.fresh,
    pytest.mark.skipif(CMAKE is None or not (BUILD / "CMakeCache.txt").is_file(), reason="needs CMake and a build"),
]


def cached(name: str) -> str:
    """The value of a variable of the build; empty: it has none."""
    found = re.search(rf"^{name}:\w+=(.*)$", (BUILD / "CMakeCache.txt").read_text(), re.M)
    return found[1] if found else ""


def installed_by_cmake(folder: Path) -> Installed:
    installed = environment(folder)
    command = [CMAKE, "--install", BUILD, "--component", "Unspecified", "--prefix", installed.packages]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    add_command(installed)
    return installed


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """A wheel for this interpreter, for the GPUs of the build: a compiler cache has most of its objects."""
    out = tmp_path_factory.mktemp("wheels")
    options = {"COHORT_PYTHON": sys.executable, "CMAKE_BUILD_PARALLEL_LEVEL": "2"}
    if cached("CMAKE_CUDA_COMPILER"):
        options |= {"COHORT_CUDA_ARCHITECTURES": cached("CMAKE_CUDA_ARCHITECTURES")}
    else:
        options |= {"COHORT_CUDA": "OFF"}
    command = ["bash", ROOT / "launch/wheel.sh", "--out", out]
    result = subprocess.run(command, env=os.environ | options, capture_output=True, text=True, timeout=1500)
    if "lacks: " in result.stderr or "this system cannot get packages of Debian" in result.stderr:
        pytest.skip(f"needs the group wheel of pyproject.toml, and Debian: {result.stderr}")
    assert result.returncode == 0, result.stdout + result.stderr
    (found,) = out.iterdir()
    return found


def installed_by_pip(what: Path, folder: Path) -> Installed:
    """A wheel, or the checkout, which is built for that."""
    installed = environment(folder)
    command = [sys.executable, "-m", "pip", "--python", installed.python, "install", "--no-deps", "--no-index", what]
    command += ["--no-build-isolation", f"--config-settings=build-dir={folder.parent / 'build'}"]
    tools = {"PATH": f"{Path(CMAKE).parent}:{os.environ['PATH']}", "CMAKE_BUILD_PARALLEL_LEVEL": "2"}
    without_nvcc = {"COHORT_CUDA": "OFF"}
    options = {"capture_output": True, "text": True, "timeout": 1500}
    result = subprocess.run(command, env=os.environ | tools | without_nvcc, **options)
    assert result.returncode == 0, result.stdout + result.stderr
    return installed


BUILDS = "builds a wheel: tests/run.sh --all does"
only_all = [pytest.mark.skipif(not ALL_TESTS, reason=BUILDS), pytest.mark.timeout(1800)]


@pytest.fixture(
    scope="module", params=["cmake", pytest.param("wheel", marks=only_all), pytest.param("checkout", marks=only_all)]
)
def installed(request, tmp_path_factory, shm) -> Installed:
    folder = tmp_path_factory.mktemp("installed") / "environment"
    if request.param == "cmake":
        found = installed_by_cmake(folder)
    else:
        found = installed_by_pip(ROOT if request.param == "checkout" else request.getfixturevalue("wheel"), folder)
    found.environment |= {"COHORT_SHM": str(shm.root), "XDG_CACHE_HOME": str(folder / "cache"), "HOME": str(folder)}
    return found


def test_the_package_is_that_of_the_environment(installed, tmp_path):
    code = "import cohort_gnn, sys; print(cohort_gnn.__file__, *sys.path, sep='\\n')"
    file, *path = installed.run("python", "-c", code, cwd=tmp_path).splitlines()
    assert Path(file).is_relative_to(installed.packages)
    assert not any((Path(folder) / "cohort_gnn").exists() for folder in path if Path(folder) != installed.packages)
    assert "usage: cohort" in installed.run("python", "-m", "cohort_gnn", "--help", cwd=tmp_path)


def test_it_trains_without_compilers_on_the_path(installed, tmp_path):
    assert not any(shutil.which(name, path=installed.environment["PATH"]) for name in ("cc", "g++", "nvcc", "cmake"))
    sizes = ["--nodes", 1000, "--edges", 8000, "--dim", 16, "--classes", 4, "--split-ratio", "0.2,0.1,0.1"]
    installed.run("cohort", "dataset", "generate", "data", *sizes, cwd=tmp_path)
    installed.run("cohort", "train", "data", "--out", "run", *ONE_EPOCH, cwd=tmp_path)
    assert (tmp_path / "run/metrics.jsonl").read_text().count("\n") == 1
    installed.run("cohort", "dataset", "partition", "data", "--parts", 2, "--method", "streaming", cwd=tmp_path)


@pytest.mark.skipif(not ALL_TESTS, reason="docs_test runs the page, too: tests/run.sh --all runs it from here")
def test_it_does_all_of_the_page_about_encoded_rows(installed, tmp_path):
    blocks = [block for block in documents.blocks(PAGE) if block.language in ("python", "bash") and not block.needs]
    assert {block.language for block in blocks} == {"python", "bash"}
    installed.run_blocks(blocks, tmp_path, BUILD)


def test_nothing_is_installed_under_the_name_of_another_project(installed):
    """`cohort` on PyPI is another project's; `environment` itself adds packages.pth."""
    names = {path.name for path in installed.packages.iterdir() if path.suffix not in (".pth", ".dist-info")}
    assert "cohort_gnn" in names and names <= {"cohort_gnn", "cohort_gnn.libs", "__pycache__"}


@pytest.mark.parametrize("installed", [pytest.param("wheel", marks=only_all)], indirect=True)
def test_a_wheel_brings_its_libraries_and_runs_on_older_systems(installed, wheel, tmp_path):
    mapped = [Path(line) for line in installed.run("python", "-c", MAPPED.format(NATIVE), cwd=tmp_path).splitlines()]
    found = [path for path in mapped if path.name.startswith("libgomp")]  # torch may have one of its own
    assert any(path.parent == installed.packages / "cohort_gnn.libs" for path in found), mapped
    assert not any(path.is_relative_to(system) for path in found for system in ("/usr/lib", "/lib")), found
    installed.run("python", "-c", "from cohort_gnn.dataset import _native; assert _native.has_metis()", cwd=tmp_path)
    assert "-manylinux_2_28_" in wheel.name  # auditwheel has looked at each symbol
    with zipfile.ZipFile(wheel) as archive:  # what the machine has or torch brings
        assert not any(re.search(r"lib(cuda|cudart|torch|stdc\+\+)[^/]*$", name) for name in archive.namelist())


@pytest.mark.parametrize("installed", [pytest.param("checkout", marks=only_all)], indirect=True)
def test_pip_installs_the_checkout_without_a_cuda_compiler(installed, tmp_path):
    code = "from cohort_gnn.ibp import _native; print(_native.with_cuda)"
    assert installed.run("python", "-c", code, cwd=tmp_path).split() == ["False"]
    answer = json.loads(installed.run(installed.packages / "cohort_gnn/bin/cohort-sampler", "--devices", cwd=tmp_path))
    assert not answer["cuda_build"]


@pytest.mark.skipif(not ALL_TESTS, reason=BUILDS)
@pytest.mark.timeout(1800)
def test_a_wheel_says_what_it_is(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        fields = HeaderParser().parsestr(archive.read(name).decode())
    assert fields["Name"] == "cohort-gnn" and fields["Requires-Python"] == ">=3.11"
    assert fields["License-Expression"] == "Apache-2.0"
    licenses = {f"launch/licenses/{path.name}" for path in (ROOT / "launch/licenses").iterdir()}
    assert set(fields.get_all("License-File")) == {"LICENSE", *licenses}
    assert set(fields.get_all("Provides-Extra")) == {"formats", "report", "tensorboard"}
    assert fields["Description-Content-Type"] == "text/markdown" and fields["Home-page"] is None


def test_the_notices_name_what_is_built_in():
    """What CMake looks for, but for programs and tests, and what the system's libraries are."""
    files = [ROOT / "CMakeLists.txt", *(ROOT / "cmake").glob("*.cmake")]
    found = {name for file in files for name in re.findall(r"find_package\((\w+)", file.read_text())}
    of_cohort = {"Python", "GTest", "Threads", "cohort"}
    named = {"OpenMP": "libgomp", "CUDAToolkit": "CUDA Runtime", "nlohmann_json": "JSON for Modern C++"}
    notices = (ROOT / "launch/licenses/NOTICES.md").read_text()
    names = {named.get(name, name) for name in found - of_cohort} | {"METIS", "robin-map", "CCCL", "libstdc++"}
    assert {"fmt", "nanobind", "libgomp"} <= names
    assert {name for name in names if f"| {name} " not in notices.replace("[", "").replace("]", " ")} == set()


@pytest.mark.skipif(not ALL_TESTS, reason="configures a build: tests/run.sh --all does")
def test_a_source_distribution_has_all_that_a_build_needs(tmp_path):
    code = "import sys, scikit_build_core.build as build; build.build_sdist(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, tmp_path], cwd=ROOT, check=True, capture_output=True, timeout=120)
    (archive,) = tmp_path.glob("cohort_gnn-*.tar.gz")
    shutil.unpack_archive(archive, tmp_path, filter="data")
    (source,) = tmp_path.glob("cohort_gnn-*/CMakeLists.txt")
    options = ["-DCOHORT_CUDA=OFF", f"-DCOHORT_TESTS={'ON' if cached('GTest_DIR') else 'OFF'}"]
    options += [f"-DPython_EXECUTABLE={sys.executable}"]
    command = [CMAKE, "-S", source.parent, "-B", tmp_path / "build", *options]
    result = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert result.returncode == 0, result.stdout + result.stderr
