"""How fast ShardedRows brings rows of another machine, encoded and raw, beside a bare exchange of as many bytes.

    PYTHONPATH=build/python python bench/sharded_rows.py [--gbits 1,5,10] [--rows FILE.npy] [--fetch 200000]
    PYTHONPATH=build/python python bench/sharded_rows.py --device cuda [--ranks 4] [--wholegraph] [--fetch 1000000]

Two processes (or `--ranks`) hold equal shares of the rows, and each fetches rows of the others. Two lie in network
namespaces at either end of a virtual cable, whose rate is limited (needs root, ip and tc); `--gbits 0`: all use the
loopback, without a limit. `--device cuda`: each has a GPU, which has its rows. Raw rows go by NCCL; encoded rows are
read in place, or go by NCCL, too, with NCCL_P2P_DISABLE=1. "bare" is torch.distributed.all_to_all_single (gloo or NCCL)
of the bytes of the rows alone, without ids: raw, and as many as the encoded rows have. "wholegraph" gathers the raw
rows from a distributed tensor of WholeGraph, if its wheel is there.
Prints the median of --rounds rounds: GB/s of decoded rows that arrive in a process, and the gain over raw rows. With
`--in-a-row 1` a round is one call of `fetch`, else so many of `start`, as a script calls it that trains meanwhile.
"""

import argparse
import contextlib
import functools
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

from cohort_gnn import ShardedRows, ibp

LIMIT_SECONDS = 600  # of all processes
ALONE_SECONDS = 10  # of the others, when one has failed
SIDES = ("bare", "raw", "bare encoded", "encoded")


@contextlib.contextmanager
def cable(gbits: float) -> Iterator[list[list[str]]]:
    """What a command begins with to run at either end of a new cable of this rate."""
    names = [f"cohort-bench-{os.getpid()}-{end}" for end in range(2)]

    def run(*words: str) -> None:
        subprocess.run(words, check=True)

    for name in names:
        run("ip", "netns", "add", name)
    try:
        run("ip", "link", "add", "cable", "netns", names[0], "type", "veth", "peer", "name", "cable", "netns", names[1])
        for end, name in enumerate(names):
            run("ip", "-n", name, "addr", "add", f"10.213.8.{1 + end}/24", "dev", "cable")
            for link in ("cable", "lo"):
                run("ip", "-n", name, "link", "set", link, "up")
            limit = ["rate", f"{gbits}gbit", "burst", "4mb", "latency", "50ms"]
            run("tc", "-n", name, "qdisc", "add", "dev", "cable", "root", "tbf", *limit)
        yield [["ip", "netns", "exec", name] for name in names]
    finally:
        for name in names:
            run("ip", "netns", "del", name)


def rows_of(args: argparse.Namespace, name: str) -> torch.Tensor:
    """[V, D], real rows, repeated; of bfloat16, several of them side by side."""
    rows = torch.from_numpy(np.load(args.rows))
    if name == "bfloat16":
        rows = rows.to(torch.bfloat16)
        rows = rows[: len(rows) // 8 * 8].view(len(rows) // 8, -1)
    return rows.repeat(-(-args.table_rows // len(rows)), 1)[: args.table_rows]


def work(args: argparse.Namespace) -> None:
    """One of the processes; rank 0 prints the seconds of each side as JSON."""
    rank, device = int(os.environ["RANK"]), torch.device(args.device)
    if args.device == "cuda":
        device = torch.device("cuda", rank)
        torch.cuda.set_device(device)
    comm = wholegraph_comm(rank, args.ranks) if args.wholegraph else None
    if comm is None:
        dist.init_process_group("cpu:gloo,cuda:nccl" if args.device == "cuda" else "gloo")
    seconds = {}
    for dtype in args.dtypes.split(","):
        table = rows_of(args, dtype)
        table = table[: len(table) // args.ranks * args.ranks]
        share = table.tensor_split(args.ranks)[rank].contiguous()
        encoded = ibp.encode(share, ibp.fit(share, codec="exponent")).to("cpu" if args.device == "cpu" else device)
        of_others = np.random.default_rng(rank).integers(len(table) - len(share), size=args.fetch)
        ids = (torch.from_numpy(of_others) + (rank + 1) * len(share)).to(device) % len(table)
        tables = {
            "raw": ShardedRows(share.to(device), device=device),
            "encoded": ShardedRows(encoded, device=device),
        }
        out = torch.empty((args.fetch, share.shape[1]), dtype=share.dtype, device=device)
        for each in tables.values():
            each.fetch(ids, out)
            assert torch.equal(out, table.to(device)[ids])
        calls = {name: functools.partial(in_a_row, each, ids, out, args.in_a_row) for name, each in tables.items()}
        of_ranks: list = [None] * args.ranks
        dist.all_gather_object(of_ranks, encoded.stored_bytes / len(share))
        stored = round(args.fetch * max(of_ranks))
        for bare, count in (("bare", out.nbytes), ("bare encoded", stored)):
            calls[bare] = repeated(bare_exchange(rank, args.ranks, count, device), args)
        if comm is not None:
            calls["wholegraph"] = repeated(wholegraph_gather(comm, table, rank, ids, out), args)
        of_sides: dict[str, list[float]] = {side: [] for side in calls}
        for _ in range(args.rounds + 1):
            for side, call in calls.items():
                dist.barrier()
                start = time.perf_counter()
                call()  # waits itself
                of_sides[side].append((time.perf_counter() - start) / args.in_a_row)
        seconds[dtype] = {"bytes": out.nbytes} | {side: statistics.median(each[1:]) for side, each in of_sides.items()}
        for each in tables.values():
            each.close()
    dist.barrier()  # rank 0 has what the other needs to end well
    dist.destroy_process_group()
    if rank == 0:
        print(json.dumps(seconds))


def in_a_row(rows: ShardedRows, ids: torch.Tensor, out: torch.Tensor, count: int) -> None:
    """So many fetches; each but the last is waited for when the next has begun."""
    if count == 1:
        rows.fetch(ids, out)
        return
    pending = rows.start(ids, out)
    for _ in range(count - 1):
        following = rows.start(ids, out)
        pending.wait()
        pending = following
    pending.wait()


def repeated(call, args: argparse.Namespace):
    """As many calls as fetches are in a row, and the wait for them."""

    def run() -> None:
        for _ in range(args.in_a_row):
            call()
        if args.device == "cuda":
            torch.cuda.synchronize()

    return run


def bare_exchange(rank: int, ranks: int, count: int, device: torch.device):
    """Sends about so many bytes to the other processes, equal shares to each, and gets as many."""
    ways = [0 if other == rank else count // (ranks - 1) for other in range(ranks)]
    given, found = (torch.zeros(sum(ways), dtype=torch.uint8, device=device) for _ in range(2))
    return lambda: dist.all_to_all_single(found, given, ways, ways)


def wholegraph_comm(rank: int, ranks: int):
    import pylibwholegraph.torch as wgth

    return wgth.init_torch_env_and_create_wm_comm(rank, ranks, rank, ranks, wm_log_level="warn")[0]


def wholegraph_gather(comm, table: torch.Tensor, rank: int, ids: torch.Tensor, out: torch.Tensor):
    """Gathers the rows from a tensor that is distributed over the GPUs."""
    import pylibwholegraph.torch as wgth

    rows = wgth.create_wholememory_tensor(
        comm, "distributed", "cuda", list(table.shape), table.dtype, [table.shape[1], 1]
    )
    own, first = rows.get_local_tensor(host_view=False)
    own.copy_(table[first : first + len(own)])
    comm.barrier()
    assert torch.equal(rows.gather(ids), out)
    return lambda: rows.gather(ids)


def measured(args: argparse.Namespace, gbits: float) -> dict:
    """What rank 0 has printed."""
    with cable(gbits) if gbits else contextlib.nullcontext([[]] * args.ranks) as ends, contextlib.ExitStack() as stack:
        address, port = ("10.213.8.1", 29517) if gbits else ("127.0.0.1", free_port())
        processes, files = [], [[stack.enter_context(tempfile.TemporaryFile("w+")) for _ in range(2)] for _ in ends]
        for rank, (begin, (out, errors)) in enumerate(zip(ends, files, strict=True)):
            places = {"RANK": str(rank), "WORLD_SIZE": str(args.ranks), "MASTER_ADDR": address}
            places |= {"MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "cable" if gbits else "lo"}
            command = [*begin, sys.executable, *sys.argv, "--work"]
            processes.append(subprocess.Popen(command, env=os.environ | places, stdout=out, stderr=errors))
            stack.callback(end, processes[-1])
        await_all(processes)
        told, said = ([file.seek(0) or file.read() for file in each] for each in zip(*files, strict=True))
    failed = [rank for rank, process in enumerate(processes) if process.returncode]
    for rank, text in enumerate(said):
        ended = f"rank {rank} ended with status {processes[rank].returncode}"
        print(f"{ended}; it said:\n{text}" if failed else text, end="", file=sys.stderr)
    if failed:
        raise SystemExit(f"sharded_rows.py: rank {failed[0]} has failed: see what it said, above")
    return json.loads(told[0])


def await_all(processes: list[subprocess.Popen]) -> None:
    """Until all have ended; those that are left alone, or take longer than LIMIT_SECONDS, are ended."""
    limit = time.monotonic() + LIMIT_SECONDS
    while any(process.poll() is None for process in processes):
        if any(process.poll() for process in processes):
            limit = min(limit, time.monotonic() + ALONE_SECONDS)
        if time.monotonic() > limit:
            for process in processes:
                end(process)
        time.sleep(0.05)


def end(process: subprocess.Popen) -> None:
    if process.poll() is None:
        process.kill()
        process.wait()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root = Path(__file__).resolve().parents[1]
    parser.add_argument("--gbits", default="1,5,10", help="rates of the cable, with commas; 0: the loopback")
    parser.add_argument("--rows", type=Path, default=root / "../shared/data/deepwalk128_f32.npy")
    parser.add_argument("--dtypes", default="float32,bfloat16")
    parser.add_argument("--table-rows", type=int, default=400_000)
    parser.add_argument("--fetch", type=int, default=100_000, help="rows that each process fetches")
    parser.add_argument("--in-a-row", type=int, default=1, help="fetches of a round, each begun before the last ends")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ranks", type=int, default=2, help="processes; more than two with --gbits 0 or GPUs alone")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--wholegraph", action="store_true", help="beside a distributed tensor of WholeGraph (GPUs)")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.device == "cuda":
        args.gbits = "0"
    if args.ranks < 2 or (args.ranks > 2 and args.gbits != "0"):
        parser.error(f"--ranks: expected 2, or more with --gbits 0 or --device cuda, found {args.ranks}")
    if args.work:
        return work(args)
    if not args.rows.is_file():
        parser.error(f"--rows: expected a .npy file of float32 [n, D], found no file {args.rows}")
    sides = [*SIDES, *(["wholegraph"] if args.wholegraph else [])]
    print(f"| link | rows | {', GB/s | '.join(sides)}, GB/s | encoded over raw |\n|---|---|{'---|' * len(sides)}---|")
    for gbits in map(float, args.gbits.split(",")):
        link = "NCCL" if args.device == "cuda" else f"{gbits:g} Gbit/s" if gbits else "loopback"
        for dtype, found in measured(args, gbits).items():
            rates = {side: found["bytes"] / found[side] / 1e9 for side in sides}
            told = " | ".join(f"{rates[side]:.2f}" for side in sides)
            print(f"| {link} | {dtype} | {told} | {rates['encoded'] / rates['raw']:.2f} |", flush=True)
    return None


if __name__ == "__main__":
    main()
