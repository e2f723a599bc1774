"""``cohort doctor``: checks everything that a run needs from this machine, and says how to fix what is wrong.

With --machines: checks the network between the machines of a run.
"""

import argparse
import json
import os
import platform
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cohort_gnn.base.errors import CohortError, why
from cohort_gnn.base.machine import devices, shared_memory_root
from cohort_gnn.base.programs import python
from cohort_gnn.base.units import format_bytes
from cohort_gnn.base.version import __version__
from cohort_gnn.cache import budget
from cohort_gnn.cache.gpu_rates import GPU_RATES, GpuRates, Rate, save_rates, type_of
from cohort_gnn.cache.interconnect import machine_bandwidth
from cohort_gnn.channel.run_folder import demand_own
from cohort_gnn.dataset.inert_torch import LEAST_TORCH, is_safe
from cohort_gnn.launch.options.parser import add_options, spec_of
from cohort_gnn.launch.run.between import rates_between
from cohort_gnn.launch.run.machines import Machine, this_machine
from cohort_gnn.launch.run.mps import Mps
from cohort_gnn.spec.run import RunSpec

WELL, WORSE, BROKEN = "ok", "could be better", "broken"
GREEN_CONTEXTS = 12050  # the driver's version from which --sampler-sms works
LANE_GB_PER_S = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}  # of a lane of PCIe, by generation
GOOD_SHARE = 0.6  # of what the lanes carry, that a GPU should get from host memory
SHM_BYTES = 64 << 20
OPEN_FILES = 256  # with which a run, on a GPU too, has been tried
DISK_BYTES = 256 << 20
SLOW_DISK = 500e6  # bytes a second
SLOW_NETWORK = 1e9  # bytes a second: 10 Gbit/s Ethernet gives more
PCIE_QUERY = "pcie.link.gen.max,pcie.link.width.max,pcie.link.gen.current,pcie.link.width.current"
TORCH_SAYS = (
    "import json, torch; print(json.dumps([torch.__version__, torch.version.cuda, torch.cuda.is_available(), "
    "torch.cuda.device_count(), torch.distributed.is_nccl_available()]))"
)


@dataclass
class Finding:
    """The result of one check."""

    name: str
    verdict: str
    found: str
    cure: str = ""


def judged(name: str, is_well: bool, state: str, cure: str, otherwise: str = WORSE) -> Finding:
    """The result of a check, with how to fix it where that is needed."""
    return Finding(name, WELL, state) if is_well else Finding(name, otherwise, state, cure)


def register(parser) -> None:
    """Adds the arguments of the command."""
    parser.description = __doc__
    parser.add_argument(
        "folder",
        nargs="?",
        type=Path,
        default=Path(),
        metavar="DIR",
        help="folder whose disk is measured (default: the current folder)",
    )
    parser.add_argument(
        "--machines",
        action="store_true",
        help="measure the network between machines instead; start it on every machine by torchrun, like cohort train",
    )
    text = "with --machines: seconds to wait for a machine that does not join or is silent"
    add_options(parser, RunSpec, only=("machine_seconds",), machine_seconds=text)
    parser.add_argument(
        "--save", type=Path, metavar="FILE", help="write the rates of this machine's GPUs, for cohort plan --gpu FILE"
    )
    parser.add_argument("--json", action="store_true", help="print JSON: a list of findings")
    parser.set_defaults(func=doctor)


def doctor(args: argparse.Namespace) -> int:
    """Prints all findings; 1 when something is broken, else 0."""
    if args.machines:
        machine = this_machine(os.environ)
        if machine is None:
            hint = "start it on every machine: torchrun --nnodes N --nproc-per-node 1 ... --no-python cohort doctor"
            raise CohortError("--machines", "several machines", "one", f"{hint} --machines")
        findings = list(examine_network(machine, spec_of(args, RunSpec).machine_seconds))
    else:
        findings = list(examine(args.folder))
    if args.json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        _print(findings)
    if args.save is not None:
        save_rates(args.save, measured_rates(devices()))
    return int(any(finding.verdict == BROKEN for finding in findings))


def measured_rates(machine: dict) -> GpuRates:
    """The rates of this machine's GPUs: memory and links as measured, the others those of their type. Where there are
    none of their type, steps remain unknown.

    Raises:
        CohortError: there is no GPU.
    """
    if not machine["gpus"]:
        hint = f"cohort plan --gpu {' or '.join(GPU_RATES)} has rates of these"
        raise CohortError("--save", "a GPU whose rates are measured", "none", hint)
    name, least = machine["gpus"][0]["name"], min(gpu["bytes"] for gpu in machine["gpus"])
    base = type_of(name)
    links = zip(("local", "peer", "host"), machine_bandwidth(machine), strict=True)
    source = f"measured: cohort doctor, {name}"
    known = {link: Rate(1e9 * rate, source) for link, rate in links} | {"memory_bytes": Rate(float(least), source)}
    others = "" if base else f"{name}, whose steps are not known"
    return msgspec.structs.replace(GPU_RATES[base or next(iter(GPU_RATES))], **known, step_source=others)


def examine(folder: Path) -> Iterator[Finding]:
    """Runs all checks; a check that fails is a finding, too."""
    try:
        machine = devices()
    except CohortError as error:
        yield Finding("GPUs", BROKEN, str(error), error.hint)
        machine = {"cuda_build": False, "gpus": [], "cliques": [], "versions": [0, 0]}
    looks: list[tuple[str, Callable[[], Iterator[Finding]]]] = [
        ("versions", _versions),
        ("GPUs", lambda: _gpus(machine)),
        ("PyTorch", lambda: _torch(machine)),
        ("host memory", _host_memory),
        ("shared memory", _shared_memory),
        ("disk", lambda: _disk(folder)),
    ]
    if machine["gpus"]:
        looks[3:3] = [("MPS", _mps), ("peers", lambda: _peers(machine)), ("PCIe", lambda: _pcie(machine))]
    for name, look in looks:
        try:
            yield from look()
        except CohortError as error:
            yield Finding(name, BROKEN, str(error), error.hint)


def examine_network(machine: Machine, silent_seconds: float) -> Iterator[Finding]:
    """Checks the network between this machine and the others; all machines check it at the same time, and agree."""
    try:
        rates = rates_between(machine, silent_seconds)
    except CohortError as error:
        yield Finding("machines", BROKEN, str(error), error.hint)
        return
    hosts = [
        f"{host} ({address or 'no IPv4'})" for host, address in zip(rates["hosts"], rates["addresses"], strict=True)
    ]
    interface = f"interface {rates['interface']}" if rates["interface"] else "the interface that gloo chooses"
    yield Finding("machines", WELL, f"{len(hosts)}: {', '.join(hosts)}; here over {interface}")
    for backend, members in (("gloo", "CPUs"), ("nccl", "GPUs")):
        if rates[backend] is None:
            continue
        for pair in rates[backend]["pairs"]:
            there, back = (f"{format_bytes(pair[way])}/s" for way in ("to", "from"))
            delay = f"{1e6 * pair['latency_seconds']:.0f} us for a small message"
            text = f"{rates['hosts'][0]} to {rates['hosts'][pair['rank']]} {there}, back {back}; {delay}"
            cure = "GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME choose a faster interface"
            cure += "; cohort plan --machines says what it costs"
            is_fast = min(pair["to"], pair["from"]) >= SLOW_NETWORK
            yield judged(f"{backend}, 0 and {pair['rank']}", is_fast, text, cure)
        small, large = (1e6 * rates[backend][name] for name in ("sum_seconds", "large_sum_seconds"))
        rate = min(min(pair["to"], pair["from"]) for pair in rates[backend]["pairs"]) / 1e9
        plan = f"cohort plan --machines {len(hosts)} --network {rate:.3g} --network-us {small:.0f}"
        said = f"a sum over all {members} takes {small:.0f} us, of 1 MiB {large:.0f} us; for {plan}"
        yield Finding(f"{backend}, all", WELL, said)


def _versions() -> Iterator[Finding]:
    packages = ", ".join(f"{name} {metadata.version(name)}" for name in ("torch_geometric", "numpy", "pyarrow"))
    system = f"{' '.join(platform.libc_ver())}, {platform.system()} {platform.release()}, {platform.machine()}"
    yield Finding("versions", WELL, f"Cohort {__version__}, Python {platform.python_version()}, {packages}; {system}")


def _gpus(machine: dict) -> Iterator[Finding]:
    if not (machine["cuda_build"] and machine["gpus"]):
        cure = "install a wheel with CUDA code, or build on a machine with nvcc, with COHORT_CUDA=ON"
        state = "this build has the CPU backend only"
        if machine["cuda_build"]:
            state = "none is visible"
            cure = "check nvidia-smi and CUDA_VISIBLE_DEVICES; in a container, use --gpus all"
        yield Finding("GPUs", WORSE, f"{state}: runs use the CPU", cure)
        return
    for gpu in machine["gpus"]:
        state, reads = f"{gpu['name']}, {format_bytes(gpu['bytes'])}", gpu["reads_registered"]
        state += "" if reads else "; it cannot read registered host memory at the host's addresses"
        cure = (
            "use another GPU (CUDA_VISIBLE_DEVICES), or --device cpu; virtual GPUs: ask for one with unified addressing"
        )
        yield judged(f"GPU {gpu['ordinal']}", reads, state, cure, BROKEN)
    driver, runtime = machine["versions"]
    state = f"CUDA {_version(driver)}; this build uses {_version(runtime)}"
    if driver // 1000 < runtime // 1000:
        cure = f"install a driver for CUDA {runtime // 1000}, or build with an older CUDA"
        yield Finding("driver", BROKEN, state, cure)
    else:
        needed = f"a driver for CUDA {_version(GREEN_CONTEXTS)} or later, for --sampler-sms"
        yield judged("driver", driver >= GREEN_CONTEXTS, state, needed)


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def _torch(machine: dict) -> Iterator[Finding]:
    said = subprocess.run(python("-c", TORCH_SAYS), capture_output=True, text=True)
    if said.returncode != 0:
        last = said.stderr.strip().splitlines()[-1:] or ["no message"]
        cure = f"{sys.executable} -m pip install torch"
        if _limit_of(resource.RLIMIT_AS) is not None:
            cure = "ulimit -v unlimited: this shell limits the address space"
        yield Finding("PyTorch", BROKEN, f"it cannot be imported: {last[0]}", cure)
        return
    version, cuda, sees_gpus, count, nccl = json.loads(said.stdout.strip().splitlines()[-1])
    state = f"{version}, {f'CUDA {cuda}' if cuda else 'for the CPU'}, {'with' if nccl else 'without'} NCCL"
    num_gpus = len(machine["gpus"])
    if not is_safe(version):
        cure = f"{sys.executable} -m pip install --upgrade torch: earlier versions may run code in a file of weights"
        yield Finding("PyTorch", BROKEN, f"{state}; the minimum is {LEAST_TORCH}", cure)
    elif num_gpus and (not sees_gpus or count != num_gpus):
        cure = "install a PyTorch for a CUDA version that the driver supports: see pytorch.org"
        yield Finding("PyTorch", BROKEN, f"{state}; it sees {count} of {num_gpus} GPUs", cure)
    else:
        cure = "install a PyTorch with NCCL: several GPUs sum gradients with it"
        yield judged("PyTorch", nccl or num_gpus <= 1, state, cure, BROKEN)


def _mps() -> Iterator[Finding]:
    mps = Mps()
    try:
        state = f"{mps.problem}: sampler and trainer would take turns"
        if mps.active:
            state = f"a daemon {'starts' if mps.process else 'is running'}: sampler and trainer run at the same time"
        cure = "install nvidia-cuda-mps-control (it comes with the driver), or leave the GPU to runs with --no-mps"
        yield judged("MPS", mps.active, state, cure)
    finally:
        mps.stop()


def _peers(machine: dict) -> Iterator[Finding]:
    if len(machine["gpus"]) == 1:
        return
    cliques = ", ".join("{" + ", ".join(map(str, clique)) + "}" for clique in machine["cliques"])
    some_do = any(len(clique) > 1 for clique in machine["cliques"])
    state = f"GPUs that read each other's memory: {cliques}" if some_do else "no GPU can read another GPU's memory"
    cure = "without NVLink or peer access, each GPU has a cache of its own; see nvidia-smi topo -m"
    yield judged("peers", some_do, state, cure)


def _pcie(machine: dict) -> Iterator[Finding]:
    local, peer, host = machine_bandwidth(machine)
    beside = f", {peer:.0f} from a peer" if any(len(clique) > 1 for clique in machine["cliques"]) else ""
    state = f"a GPU gets {host:.1f} GB/s from host memory, {local:.0f} from its own{beside}"
    lanes = _lanes()
    if lanes:
        state += f"; the link is {lanes[1]}: {lanes[0]:.0f} GB/s"
    cure = "possible causes: other users of the link, a slot with few lanes, ACS, an IOMMU; nvidia-smi -q -d PCIE"
    yield judged("PCIe", lanes is None or host >= GOOD_SHARE * lanes[0], state, cure)


def _lanes() -> tuple[float, str] | None:
    """(GB/s of the slowest GPU's lanes at their best, in words); None where nvidia-smi does not say."""
    command = ["nvidia-smi", f"--query-gpu={PCIE_QUERY}", "--format=csv,noheader,nounits"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=30)
        rows = [[int(part) for part in line.split(",")] for line in said.stdout.strip().splitlines()]
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    rates = [(LANE_GB_PER_S[row[0]] * row[1], f"PCIe {row[0]} x{row[1]}") for row in rows if row[0] in LANE_GB_PER_S]
    return min(rates, default=None)


def _host_memory() -> Iterator[Finding]:
    present, limited = budget.available_host_bytes(), ""
    if "COHORT_HOST_MEMORY_BYTES" in os.environ:
        limited = " by COHORT_HOST_MEMORY_BYTES"
    elif present < 0.9 * (whole := _available_on_machine()):
        limited = f" by the control groups of this container or job; the machine has {format_bytes(whole)}"
    state = f"{format_bytes(present)} available{limited}; `cohort plan DIR` says what a graph needs"
    yield Finding("host memory", WELL, state)
    locked = _limit_of(resource.RLIMIT_MEMLOCK)
    if locked is None or locked >= present:
        yield Finding("locked memory", WELL, "no limit below this")
    else:
        cure = "if pinning memory fails: ulimit -l unlimited; in a container --ulimit memlock=-1"
        yield Finding("locked memory", WELL, f"at most {format_bytes(locked)} by the limit of this shell", cure)
    if (space := _limit_of(resource.RLIMIT_AS)) is not None:
        cure = "ulimit -v unlimited: PyTorch and files that are mapped take more address space than memory"
        yield Finding("address space", WORSE, f"at most {format_bytes(space)} by the limit of this shell", cure)
    if (num_files := _limit_of(resource.RLIMIT_NOFILE)) is not None and num_files < OPEN_FILES:
        cure = f"ulimit -n {OPEN_FILES}, or more for cohort serve with many connections"
        yield Finding("open files", WORSE, f"at most {num_files} by the limit of this shell", cure)
    threads, cores = os.environ.get("OMP_NUM_THREADS", ""), len(os.sched_getaffinity(0))
    limits = threads.isdigit() and int(threads) < cores
    note = f"; OMP_NUM_THREADS is {threads}: loading, planning, the sampler on the CPU and PyTorch use as many threads"
    yield Finding("cores", WELL, f"{cores}{note * limits}")


def _limit_of(what: int) -> int | None:
    """A limit of the shell; None: there is none."""
    soft, _ = resource.getrlimit(what)
    return None if soft == resource.RLIM_INFINITY else soft


def _available_on_machine() -> int:
    """MemAvailable of the kernel, in bytes; 0 where it says none."""
    line = re.search(r"^MemAvailable:\s+(\d+) kB$", Path("/proc/meminfo").read_text(), re.M)
    return 1024 * int(line[1]) if line else 0


def _shared_memory() -> Iterator[Finding]:
    if shared_memory_root().exists():
        demand_own(shared_memory_root())
    root = shared_memory_root().parent
    if not os.access(root, os.W_OK):
        cure = "mount it, or set COHORT_SHM to a folder in memory that you can write to"
        yield Finding("shared memory", BROKEN, f"{root} cannot be written", cure)
        return
    free = shutil.disk_usage(root).free
    is_little = free < SHM_BYTES
    note = f", below {format_bytes(SHM_BYTES)}" if is_little else "; only runs on the CPU keep batches there"
    cure = "remove files of dead programs there; in a container: --shm-size=2g or --ipc=host"
    yield judged("shared memory", not is_little, f"{format_bytes(free)} free in {root}{note}", cure, BROKEN)


def _disk(folder: Path) -> Iterator[Finding]:
    try:
        rate = read_rate(folder, min(DISK_BYTES, shutil.disk_usage(folder).free // 4))
    except OSError as error:
        yield Finding("disk", BROKEN, f"{folder}: {why(error)}", "name a folder that exists and can be written")
        return
    state = f"{folder.resolve()} reads {format_bytes(rate)}/s"
    cure = "the first start on a data set reads all of it at this rate; keep it on a local disk"
    yield judged("disk", rate >= SLOW_DISK, state, cure)
    try:
        tempfile.gettempdir()
    except OSError as error:
        yield Finding("temporary files", BROKEN, why(error), "set TMPDIR to a folder that can be written")


def read_rate(folder: Path, num_bytes: int) -> float:
    """Bytes a second of reading a new file of the folder in order, past the page cache where the kernel lets go of it.

    Raises:
        OSError: a file cannot be written there.
    """
    piece = os.urandom(1 << 20)
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(max(1, num_bytes >> 20)):
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        file.seek(0)
        begin, count = time.perf_counter(), 0
        while part := file.read(8 << 20):
            count += len(part)
        return count / (time.perf_counter() - begin)


def _print(findings: list[Finding]) -> None:
    colours = {WELL: "green", WORSE: "yellow", BROKEN: "red"}
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("what", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("found, and how to fix it")
    for finding in findings:
        text = finding.found + (f"\n-> {finding.cure}" if finding.cure else "")
        table.add_row(finding.name, f"[{colours[finding.verdict]}]{finding.verdict}[/]", Text(text))
    Console(highlight=False).print(table)
    wrong = sum(finding.verdict == BROKEN for finding in findings)
    print(f"{wrong} broken" if wrong else "nothing is broken")
