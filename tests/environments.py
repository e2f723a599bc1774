"""Unusual environments of a GPU: each run there trains, or ends with a sentence and a cure. Needs a GPU, and root.

    python tests/environments.py [--out FOLDER] [NAME ...]      prints a table; exit status 1 when a row FAILED

Each environment runs `cohort train`, a loader in a script of one's own, and for some `cohort plan` and more options of
`cohort train`. A run FAILED when it neither ended well nor was refused by an error with a hint, or did not end at all.
"""

import argparse
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

LIMIT_SECONDS = 90
TRAIN = ["cohort", "train", "{data}", "--fanout", "10,5", "--epochs", "2", "--overwrite", "--out", "{out}"]
PLAN = ["cohort", "plan", "{data}", "--fanout", "10,5"]
LOADER = [sys.executable, __file__, "--loader", "{data}"]
SMS_16 = ["--device", "cuda", "--sampler-sms", "16"]
SHM_64MB = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=64m tmpfs /dev/shm && exec "$@"', "sh"]


@dataclass(frozen=True)
class Environment:
    """Variables, a command in front of each run, and what runs beside it."""

    env: dict[str, str] = field(default_factory=dict)
    prefix: tuple[str, ...] = ()
    beside: str = ""  # mps:PERCENT, mps_memory:LIMIT, hog:BYTES to leave free
    runs: tuple[str, ...] = ("train", "loader")


RUNS = {
    "train": TRAIN,
    "train auto": [*TRAIN, "--cache-ratio", "auto"],
    "train 16 SMs": [*TRAIN, *SMS_16],
    "plan": PLAN,
    "loader": LOADER,
    "two loaders": [*LOADER, "--two"],
    "loader in a group": [*LOADER, "--group"],
}
ALL_KINDS = ("train", "train auto", "train 16 SMs", "plan", "loader")
ENVIRONMENTS = {
    "nothing unusual": Environment(runs=(*ALL_KINDS, "two loaders", "loader in a group")),
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True": Environment(
        {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    ),
    "PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync": Environment(
        {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}
    ),
    "CUDA_VISIBLE_DEVICES by UUID": Environment({"CUDA_VISIBLE_DEVICES": "{uuid}"}),
    "CUDA_DEVICE_MAX_CONNECTIONS=1": Environment({"CUDA_DEVICE_MAX_CONNECTIONS": "1"}),
    "CUDA_LAUNCH_BLOCKING=1": Environment({"CUDA_LAUNCH_BLOCKING": "1"}),
    "own MPS daemon, 25 % of the threads": Environment(beside="mps:25", runs=ALL_KINDS),
    "own MPS daemon, 50 % of the threads": Environment(beside="mps:50", runs=ALL_KINDS),
    "own MPS daemon, 8 GB for a client": Environment(beside="mps_memory:8G", runs=ALL_KINDS),
    "memlock of 64 KB": Environment(prefix=("prlimit", "--memlock=65536:65536")),
    "memlock of 64 KB, not privileged": Environment(
        prefix=("setpriv", "--bounding-set=-ipc_lock,-sys_resource", "--inh-caps=-ipc_lock,-sys_resource")
        + ("prlimit", "--memlock=65536:65536")
    ),
    "256 open files": Environment(prefix=("prlimit", "--nofile=256:256")),
    "/dev/shm of 64 MB": Environment(prefix=tuple(SHM_64MB)),
    "3 GB of GPU memory left": Environment(beside=f"hog:{3 << 30}", runs=("train", "train auto", "plan", "loader")),
}


def train_with_loader(data: str, two: bool, group: bool) -> None:
    """A script of one's own: an epoch with one loader, or with two at once; under a process group of its own."""
    import torch
    import torch.nn.functional as F
    from torch_geometric.nn import SAGEConv

    import cohort_gnn as cohort

    if group:
        store = torch.distributed.TCPStore("127.0.0.1", 0, 1, is_master=True)
        torch.distributed.init_process_group("nccl", store=store, rank=0, world_size=1)
    options = dict(num_neighbors=[10, 5], batch_size=512, shuffle=True)
    loaders = [cohort.NeighborLoader(data, **options) for _ in range(1 + two)]
    dataset = cohort.dataset.open(data)
    conv = SAGEConv(dataset.feature_dim, dataset.num_classes).cuda()
    optimizer = torch.optim.Adam(conv.parameters(), lr=0.01)
    loss = torch.zeros(())
    for batches in zip(*loaders, strict=True):
        for batch in batches:
            out = conv(batch.x, batch.edge_index)[: batch.batch_size]
            loss = F.cross_entropy(out, batch.y[: batch.batch_size])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    if group:
        torch.distributed.destroy_process_group()
    print(f"loss {loss.item():.3f}, {torch.cuda.get_device_properties(0).multi_processor_count} SMs")


def hog(left_bytes: int) -> None:
    """Takes the GPU's memory but for ``left_bytes``; says so, then waits to be ended."""
    import torch

    free, _ = torch.cuda.mem_get_info()
    kept = torch.empty(max(free - left_bytes, 0), dtype=torch.uint8, device="cuda")
    print(f"took {kept.numel()}", flush=True)
    time.sleep(3600)


@contextlib.contextmanager
def running_beside(what: str, folder: Path) -> Iterator[dict[str, str]]:
    """What an environment has beside its runs; yields the variables that belong to it."""
    kind, _, value = what.partition(":")
    if kind == "hog":
        process = subprocess.Popen([sys.executable, __file__, "--hog", value], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None and process.stdout.readline().startswith("took"), "the hog has failed"
        try:
            yield {}
        finally:
            process.kill()
            process.wait()
    elif kind:
        pipe = Path(tempfile.mkdtemp(prefix="user-mps-", dir="/tmp"))
        env = {"CUDA_MPS_PIPE_DIRECTORY": str(pipe), "CUDA_MPS_LOG_DIRECTORY": str(pipe)}
        percent = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": value} if kind == "mps" else {}
        limit = {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": f"0={value}"} if kind == "mps_memory" else {}
        subprocess.run(["nvidia-cuda-mps-control", "-d"], env=os.environ | env | percent, check=True)
        try:
            yield env | limit  # only a client's own environment limits its memory (driver 580)
        finally:
            subprocess.run(["nvidia-cuda-mps-control"], input="quit -t 5\n", env=os.environ | env, text=True)
            shutil.copytree(
                pipe, folder / f"mps-{kind}-{value}", ignore=lambda _, names: [n for n in names if "log" not in n]
            )
            shutil.rmtree(pipe, ignore_errors=True)
    else:
        yield {}


def outcome(code: int | None, text: str) -> str:
    """What a run came to, in a line: what it did, what refused it, or that it FAILED."""
    lines = text.strip().splitlines() or ["(no output)"]
    if code is None:
        return f"FAILED: did not end within {LIMIT_SECONDS} s; {lines[-1]:.120}"
    if code == 0:
        told = [line for line in lines if re.search(r"^(loss |epoch +1\b)|SMs|cache", line)]
        notes = [line for line in lines if "warning" in line.lower() or "no MPS" in line]
        return "ok: " + " | ".join(dict.fromkeys([*told[-1:], *notes[:2]]))[:220]
    refusal = re.search(r"^.*expected .*, found .*$", text, re.M)
    if refusal and "hint: " in text and "Traceback" not in text:
        hint = text.partition("hint: ")[2].partition("\n")[0]
        return f"refused: {refusal[0].strip():.160}; hint: {hint:.120}"
    return f"FAILED with {code}: {lines[-1]:.200}"


def run(command: list[str], env: dict[str, str], log: Path) -> tuple[int | None, str, float]:
    began = time.monotonic()
    with log.open("w+") as output:
        process = subprocess.Popen(command, env=env, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        try:
            code: int | None = process.wait(LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
            process.wait()
            code = None
    return code, log.read_text(), time.monotonic() - began


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="environments whose names contain one of these")
    parser.add_argument("--out", type=Path, default=Path(tempfile.gettempdir(), "cohort-environments"))
    parser.add_argument("--loader", metavar="DATA", help=argparse.SUPPRESS)
    parser.add_argument("--two", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--group", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--hog", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.loader:
        train_with_loader(args.loader, args.two, args.group)
        return 0
    if args.hog is not None:
        hog(args.hog)
        return 0
    args.out.mkdir(parents=True, exist_ok=True)
    data = args.out / "data"
    generate = (
        "--kind powerlaw --nodes 200K --edges 4M --dim 128 --classes 8 --seed 0 --split-ratio 0.2,0.02,0.02 --overwrite"
    )
    subprocess.run(["cohort", "dataset", "generate", data, *generate.split()], check=True, stdout=subprocess.DEVNULL)
    query = ["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"]
    uuid = subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()[0]
    failed = False
    for name, environment in ENVIRONMENTS.items():
        if args.names and not any(part in name for part in args.names):
            continue
        with running_beside(environment.beside, args.out) as more:
            told = {key: value.format(uuid=uuid) for key, value in environment.env.items()}
            for kind in environment.runs:
                log = args.out / (re.sub(r"\W+", "-", f"{name} {kind}") + ".log")
                words = {"data": data, "out": log.with_suffix("")}
                command = [*environment.prefix, *(word.format(**words) for word in RUNS[kind])]
                code, text, seconds = run(command, os.environ | more | told, log)
                line = outcome(code, text)
                failed |= line.startswith("FAILED")
                print(f"{name:<50} {kind:<17} {seconds:5.1f} s  {line}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
