"""The installed C++ package: a program outside of the repository finds it, links it and fetches rows."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cohort_gnn import ibp
from cohort_gnn.ibp import _native

EXAMPLE = Path(__file__).parents[2] / "examples/cpp"
BUILD = Path(_native.__file__).parents[3]  # of BUILD/python/cohort_gnn/ibp
CMAKE = shutil.which("cmake", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")


def run(*command) -> str:
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=240)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> Path:
    if CMAKE is None or not (BUILD / "CMakeCache.txt").is_file():
        pytest.skip("needs CMake and a build tree")
    folder = tmp_path_factory.mktemp("package")
    prefix, source = folder / "prefix", folder / "source"
    run(CMAKE, "--install", BUILD, "--component", "cpp", "--prefix", prefix)
    shutil.copytree(EXAMPLE, source)  # away from the repository's headers
    (compiler,) = re.findall(r"^CMAKE_CXX_COMPILER:\w+=(.*)$", (BUILD / "CMakeCache.txt").read_text(), re.M)
    options = [f"-DCMAKE_PREFIX_PATH={prefix}", f"-DCMAKE_CXX_COMPILER={compiler}", "-DCMAKE_BUILD_TYPE=Release"]
    run(CMAKE, "-S", source, "-B", folder / "build", *options)
    run(CMAKE, "--build", folder / "build")
    assert {path.name for path in prefix.iterdir()} == {"include", "lib"}
    return folder / "build/fetch_rows"


@pytest.fixture
def rows(tmp_path) -> np.ndarray:
    rows = np.random.default_rng(0).standard_normal((1000, 20), dtype=np.float32)
    ibp.Table(rows).save(tmp_path / "rows.ibp")
    return rows


def fetched(program: Path, *arguments) -> np.ndarray:
    return np.array([line.split() for line in run(program, *arguments).splitlines()], dtype=np.float32)


def test_a_program_fetches_rows(program, rows, tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert np.array_equal(fetched(program, tmp_path / "rows.ibp", 3, 999, 3), rows[[3, 999, 3]])
    result = subprocess.run([program, tmp_path / "rows.ibp", "1000"], capture_output=True, text=True)
    assert result.returncode == 1 and "index[0]: expected 0 to 999, found 1000" in result.stderr


@pytest.mark.gpu
def test_a_program_fetches_rows_by_a_gpu(program, rows, tmp_path):
    assert np.array_equal(fetched(program, tmp_path / "rows.ibp", 3, 999, 3), rows[[3, 999, 3]])
