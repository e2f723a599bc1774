"""How long a batch of learned rows takes: cohort.nn.NodeEmbedding's rows read, and an optimizer's step on them.

    PYTHONPATH=build/python python bench/learned_rows.py [--nodes 2449029] [--batch 1200000] [--dim 128]

Prints, for each place of rows and states and each optimizer, the median milliseconds of the reading and of the step,
each to the end of all work on the GPU, and the mean of batches that follow each other without waiting. The ids of a
batch differ from each other; `--hot-reads` is the share of them in the tenth of the nodes that is hot.
"""

import argparse
import time

import torch

from cohort_gnn.nn import NodeEmbedding, RowAdagrad, RowAdam

# Arguments of NodeEmbedding, and of its optimizer; "hot": the first tenth.
PLACES = {
    "device": ({}, {}),
    "host": ({"place": "host"}, {}),
    "host, states on device": ({"place": "host"}, {"states_on_device": True}),
    "host, a tenth hot": ({"place": "host", "hot": True}, {}),
    "the same, states on device": ({"place": "host", "hot": True}, {"states_on_device": True}),
}
OPTIMIZERS = {"adagrad": RowAdagrad, "adam": RowAdam}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--nodes", type=int, default=2_449_029, help="rows of the table (default: those of ogbn-products)"
    )
    parser.add_argument("--batch", type=int, default=1_200_000, help="ids of a batch (default: %(default)s)")
    parser.add_argument("--dim", type=int, default=128, help="columns (default: %(default)s)")
    parser.add_argument("--hot-reads", type=float, default=0.1, help="share of a batch in the hot tenth (default: 0.1)")
    parser.add_argument("--repeats", type=int, default=10, help="timed batches (default: %(default)s)")
    parser.add_argument(
        "--device", default="cuda" if torch.cuda.is_available() else "cpu", help="default: a GPU, if any"
    )
    args = parser.parse_args()
    print(f"{'rows':26} {'optimizer':10} {'read ms':>9} {'step ms':>9} {'sum ms':>9} {'batch ms':>9}")
    for place, (of_rows, of_states) in PLACES.items():
        for name, make in OPTIMIZERS.items():
            hot = torch.arange(args.nodes // 10) if of_rows.get("hot") else None
            rows = NodeEmbedding(args.nodes, args.dim, **of_rows | {"hot": hot}, device=args.device, seed=0)
            optimizer = make(rows, lr=0.01, **of_states)
            read, step = measure(rows, optimizer, args)
            each = in_turn(rows, optimizer, args)
            times = " ".join(f"{1e3 * seconds:9.2f}" for seconds in (read, step, read + step, each))
            print(f"{place:26} {name:10} {times}")
            del rows, optimizer


def measure(rows: NodeEmbedding, optimizer, args) -> tuple[float, float]:
    """Median seconds of the reading and of the step."""
    seconds = []
    grad = torch.randn(args.batch, args.dim, device=args.device)
    for number in range(args.repeats + 2):  # two to warm up
        ids = batch(number, args)
        now = [clock(args.device)]
        read = rows(ids)
        now.append(clock(args.device))
        read.backward(grad)
        now.append(clock(args.device))
        optimizer.step()
        now.append(clock(args.device))
        seconds.append((now[1] - now[0], now[3] - now[2]))
    read, step = (sorted(each)[len(each) // 2] for each in zip(*seconds[2:], strict=True))
    return read, step


def in_turn(rows: NodeEmbedding, optimizer, args) -> float:
    """Mean seconds of a batch, without waiting between batches."""
    grad = torch.randn(args.batch, args.dim, device=args.device)
    batches = [batch(number, args) for number in range(args.repeats)]
    began = clock(args.device)
    for ids in batches:
        rows(ids).backward(grad)
        optimizer.step()
    return (clock(args.device) - began) / len(batches)


def batch(number: int, args) -> torch.Tensor:
    """Different ids in random order, of which a share is hot."""
    generator = torch.Generator().manual_seed(number)
    num_hot = min(round(args.batch * args.hot_reads), args.nodes // 10)
    hot = torch.randperm(args.nodes // 10, generator=generator)[:num_hot]
    others = torch.randperm(args.nodes - args.nodes // 10, generator=generator)[: args.batch - num_hot]
    ids = torch.cat([hot, others + args.nodes // 10])
    if len(ids) < args.batch:
        raise SystemExit(f"--batch: expected at most {len(ids)} different ids, found {args.batch}")
    return ids[torch.randperm(args.batch, generator=generator)].to(args.device)


def clock(device: str) -> float:
    if device != "cpu":
        torch.cuda.synchronize()
    return time.perf_counter()


if __name__ == "__main__":
    main()
