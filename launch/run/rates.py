"""``python -m cohort_gnn.launch.run.rates``: what the network gives between machine 0 and each other machine of a run.

A process of its own on each machine, for ``cohort doctor --machines``, so that the launcher need not import torch. The
argument is JSON: {"rank", "hosts", "store" (as in run.json, see trainer/loop/ranks.py), "on_gpus"}. It prints one line
of JSON, the same on each machine: {"gloo": what `measure` finds, "nccl": the same between GPUs, or null}.
"""

import datetime
import json
import os
import sys
import time

import torch
import torch.distributed as dist

SMALL_BYTES, LARGE_BYTES, SUM_BYTES = 8, 8 << 20, 1 << 20
SMALL_MESSAGES = 200  # there and back
SUMS = 20
RATE_SECONDS = 0.3  # of each direction, about
MOST_MESSAGES = 1000


def measure(device: torch.device) -> dict:
    """The rates of the default group's network: {"pairs": [{"rank", "latency_seconds" (one way), "to", "from" (bytes a
    second, as seen from machine 0)}], "sum_seconds": of a few bytes over all machines, "large_sum_seconds": of 1 MiB}.

    Every machine calls it; the numbers are machine 0's.
    """
    pairs = []
    for other in range(1, dist.get_world_size()):
        if dist.get_rank() in (0, other):
            peer = other if dist.get_rank() == 0 else 0
            latency = _latency(peer, device)
            rates = [_rate(sender, other, device) for sender in (0, other)]
            pairs.append({"rank": other, "latency_seconds": latency, "to": rates[0], "from": rates[1]})
        dist.barrier()
    sums = [_sum_seconds(num_bytes, device) for num_bytes in (SMALL_BYTES, SUM_BYTES)]
    results = [{"pairs": pairs, "sum_seconds": sums[0], "large_sum_seconds": sums[1]}]
    dist.broadcast_object_list(results, 0)
    return results[0]


def _latency(peer: int, device: torch.device) -> float:
    """Seconds of a small message, one way: half of the median there and back."""
    word, seconds = torch.zeros(SMALL_BYTES, dtype=torch.uint8, device=device), []
    for _ in range(SMALL_MESSAGES):
        begin = time.perf_counter()
        for is_first in (True, False):
            (dist.send if is_first == (dist.get_rank() == 0) else dist.recv)(word, peer)
        _wait_for(device)
        seconds.append(time.perf_counter() - begin)
    return sorted(seconds)[SMALL_MESSAGES // 2] / 2


def _rate(sender: int, other: int, device: torch.device) -> float:
    """Bytes a second from the sender, machine 0 or the other, to the other of the two; each measures it."""
    peer, sends = 0 if dist.get_rank() else other, dist.get_rank() == sender
    message = torch.zeros(LARGE_BYTES, dtype=torch.uint8, device=device)
    word = torch.ones(1, dtype=torch.int64, device=device)
    seconds = _pass_on(message, word, 1, peer, sends, device)  # the first one finds out how many are needed
    if sends:
        word.fill_(max(1, min(MOST_MESSAGES, int(RATE_SECONDS / seconds))))
    (dist.send if sends else dist.recv)(word, peer)
    number = int(word.item())
    return number * LARGE_BYTES / _pass_on(message, word, number, peer, sends, device)


def _pass_on(message, word, number: int, peer: int, sends: bool, device: torch.device) -> float:
    """Seconds from the first of so many messages to the receiver's word that it has all."""
    begin = time.perf_counter()
    for _ in range(number):
        (dist.send if sends else dist.recv)(message, peer)
    (dist.recv if sends else dist.send)(word, peer)
    _wait_for(device)
    return time.perf_counter() - begin


def _sum_seconds(num_bytes: int, device: torch.device) -> float:
    """The median of some sums over all machines, as a step makes one."""
    values, seconds = torch.zeros(num_bytes // 4, device=device), []
    for _ in range(SUMS):
        dist.barrier()
        begin = time.perf_counter()
        dist.all_reduce(values)
        _wait_for(device)
        seconds.append(time.perf_counter() - begin)
    return sorted(seconds)[SUMS // 2]


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def main(about: dict) -> None:
    """See the top of this file."""
    rates: dict[str, dict | None] = {"nccl": None}
    where = about["store"]
    limit = datetime.timedelta(seconds=where["seconds"])
    store = dist.TCPStore(where["host"], where["port"], is_master=False, wait_for_workers=False, timeout=limit)
    for backend in ("gloo", *(["nccl"] if about["on_gpus"] else [])):
        device = torch.device("cuda", 0) if backend == "nccl" else torch.device("cpu")
        own = dist.PrefixStore(f"{where['prefix']}/{backend}", store)
        place = {"rank": about["rank"], "world_size": len(about["hosts"])}
        on = device if backend == "nccl" else None
        dist.init_process_group(backend, store=own, timeout=limit, device_id=on, **place)
        rates[backend] = measure(device)
        dist.destroy_process_group()
    sys.stdout.write(json.dumps(rates) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
    os._exit(0)  # without destructors: they may wait for a machine that has ended
