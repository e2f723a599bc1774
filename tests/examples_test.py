"""The scripts of examples/, as their first lines say that they are run."""

import csv
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import warm
from processes import ALL_TESTS

from cohort_gnn import dataset

pytestmark = pytest.mark.usefixtures("shm")

EXAMPLES = Path(__file__).parents[1] / "examples"
TRAIN_NODES, VAL_NODES = 350, 200
EPOCH_OF_TWO = (
    f"epoch {{}}: loss [0-9.]+, 192 \\+ 158 seeds, {TRAIN_NODES} different\n"  # 6 batches of 64, the last of 30
)
SCONTROL = '#!/bin/sh\n[ "$1 $2 $3" = "show hostnames localhost" ] && echo localhost\n'
SRUN = """#!/bin/bash
# Starts the tasks of a step as SLURM does.
export SLURM_STEP_NUM_TASKS=2 SLURM_NTASKS=2
pids=()
for rank in 0 1; do
  SLURM_PROCID=$rank SLURM_LOCALID=$rank "$@" &
  pids+=($!)
done
code=0
for pid in "${pids[@]}"; do wait "$pid" || code=$?; done
exit $code
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "small"
    dataset.generate(folder, kind="sbm", nodes=1000, edges=10_000, dim=16, classes=4, split=(0.35, 0.2, 0.2))
    return folder


@pytest.fixture(scope="module")
def programs(tmp_path_factory) -> Path:
    """`python`, `cohort` and what SLURM has."""
    folder = tmp_path_factory.mktemp("programs")
    warm.write_programs(folder)
    for name, text in (("scontrol", SCONTROL), ("srun", SRUN)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return folder


@pytest.fixture
def environment(programs) -> dict[str, str]:
    """One of no rank, on the CPU."""
    path = f"{programs}:{os.environ['PATH']}"
    return os.environ | {"PATH": path, "CUDA_VISIBLE_DEVICES": "", "GLOO_SOCKET_IFNAME": "lo"}


def run(*command, env: dict[str, str], folder: Path = EXAMPLES.parent) -> subprocess.CompletedProcess:
    words = [sys.executable if command[0] == "python" else command[0], *map(str, command[1:])]
    options = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "timeout": 120}
    return subprocess.run(words, cwd=folder, env=env, **options)


def printed(*command, **options) -> str:
    result = run(*command, **options)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def slurm(job: int) -> dict[str, str]:
    return {"SLURM_JOB_ID": str(job), "SLURM_JOB_NODELIST": "localhost"}


@pytest.mark.parametrize("command", [("python", "examples/spawn.py"), ("bash", "examples/srun.sh")], ids=" ".join)
def test_ranks_train_on_each_seed_once(data, environment, command):
    found = printed(*command, data, env=environment | (slurm(os.getpid()) if command[0] == "bash" else {}))
    assert re.fullmatch("".join(EPOCH_OF_TWO.format(epoch) for epoch in range(2)), found), found


def test_tasks_of_srun_without_a_group_are_refused(data, environment):
    result = run("srun", "python", "examples/inference_mode.py", data, env=environment | slurm(1))
    assert result.returncode == 1 and result.stdout == ""
    assert result.stderr.count("CohortError: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE") == 2


@pytest.mark.parametrize("ranks", [2, *[1] * ALL_TESTS])
def test_lightning_fits_and_validates(data, environment, ranks):
    found = printed("python", "examples/lightning_sage.py", data, ranks, env=environment)
    (accuracy,) = re.findall(f"^{3 * TRAIN_NODES} seeds; validation ([0-9.]+) of {VAL_NODES} nodes$", found, re.M)
    assert float(accuracy) > 0.9


def test_inference_mode_evaluates(data, environment):
    found = printed("python", "examples/inference_mode.py", data, env=environment)
    accuracies = [float(number) for number in re.findall(r"^epoch \d: validation ([0-9.]+)$", found, re.M)]
    assert len(accuracies) == 3 and accuracies[-1] > 0.9


def test_a_model_of_several_types_learns(environment, tmp_path):
    sizes = {"nodes": 6000, "edges": 90_000, "dim": 16, "classes": 2}
    dataset.generate_typed(tmp_path / "typed", **sizes, all_features=True)
    found = printed("python", "examples/hetero.py", tmp_path / "typed", 15, env=environment)
    (accuracy,) = re.findall(r"^test: accuracy ([0-9.]+)$", found, re.M)
    assert float(accuracy) > 0.8


def test_a_model_of_links_learns(environment, tmp_path):
    blocks = {"nodes": 1000, "edges": 10_000, "dim": 16, "classes": 4, "undirected": True}
    dataset.generate(tmp_path / "links", kind="sbm", **blocks)
    found = printed("python", "examples/links.py", tmp_path / "links", 3, env=environment)
    ranks = [float(number) for number in re.findall(r"^epoch \d: loss [0-9.]+, MRR ([0-9.]+)", found, re.M)]
    assert len(ranks) == 3 and ranks[-1] > 0.09  # 0.05 by chance


def test_ranks_share_rows_out(environment, tmp_path):
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).standard_normal((1000, 64)).astype(np.float32))
    launcher = ["python", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2]
    found = printed(*launcher, "examples/sharded_rows.py", tmp_path / "rows.npy", env=environment)
    shares = re.findall(r"^rank [01]: \d+ rows of other ranks, ([0-9.]+) of their bytes$", found, re.M)
    assert len(shares) == 2 and all(float(share) < 0.95 for share in shares)


def test_a_model_of_events_learns(environment):
    found = printed("python", "examples/temporal.py", 4, env=environment)
    (accuracy,) = re.findall(r"^later: accuracy ([0-9.]+)$", found, re.M)
    assert float(accuracy) > 0.9


def test_a_classifier_learns_over_encoded_vectors(environment, tmp_path):
    found = printed("python", "examples/embedding_bag.py", tmp_path / "vectors.ibp", env=environment)
    assert re.match(r"20000 vectors: exponent, 8\d% of their bytes\n", found), found
    lines = re.findall(r"^epoch \d: accuracy ([0-9.]+), (\d+) rows read$", found, re.M)
    assert len(lines) == 3 and float(lines[-1][0]) > 0.9 and int(lines[-1][1]) > 20_000
    assert (tmp_path / "vectors.ibp").stat().st_size < 20_000 * 64 * 4


def test_a_compiled_model_learns(data, environment):
    """Without code of inductor's, which takes the compiler half a minute."""
    found = printed("python", "examples/compiled.py", data, "aot_eager", env=environment)
    losses = [float(number) for number in re.findall(r"^epoch \d: loss ([0-9.]+)$", found, re.M)]
    assert len(losses) == 3 and losses[-1] < 0.5 * losses[0]


def test_a_callback_logs_epochs(data, environment, tmp_path):
    options = ["--callbacks", "csv_logger:CsvLogger", "--device", "cpu", "--epochs", 3, "--out", tmp_path / "run"]
    command = ["python", "-m", "cohort_gnn", "train", data, *options, "--fanout", "5,5", "--quiet"]
    printed(*command, env=environment, folder=EXAMPLES)
    with open(tmp_path / "run/epochs.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["epoch"] for row in rows] == ["0", "1", "2"] and float(rows[-1]["accuracy"]) > 0.5
    assert all(float(row["loss"]) > 0 and float(row["seconds"]) > 0 for row in rows)


@pytest.mark.gpu
@pytest.mark.parametrize("script", ["spawn.py", "lightning_sage.py", "inference_mode.py", "compiled.py"])
def test_scripts_run_on_gpus(data, script):
    """compiled.py by inductor; spawn.py has a rank for each GPU."""
    assert printed("python", f"examples/{script}", data, env=dict(os.environ))
