"""How many feature rows does an epoch need from host memory, by the way that neighbours are drawn? An exact count.

    python bench/layer_rows.py DIR [--fanout 25,10] [--batch-size 8192] [--methods neighbor,labor,labor:4]

Draws two epochs on the CPU for each method: `neighbor`, `labor`, or `labor:K` with --batch-dependency K; `:layers` and
`:importance` after these with --layer-dependency and --importance-sampling. The first epoch says which rows are read
most; of the second, these are counted, in millions:

- all: the nodes of each batch, summed.
- cached: of these, without those in a cache of --cache-ratio of all rows, the ones that the first epoch read most.
- a pool of P: of these, without those that are in a pool with room for P of all rows, which has the ones read last.

--communities FILE.npy, of int32 or int64 [nodes]: each method is counted once more with --seed-order FILE.npy, for each
--seed-mix of --mixes.
"""

import argparse
from pathlib import Path

import numpy as np

import cohort_gnn as cohort
from cohort_gnn.base.tables import TextTable, print_tables


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", type=Path, metavar="DIR")
    parser.add_argument("--fanout", default="25,10")
    parser.add_argument("--batch-size", type=int, default=8192)
    parser.add_argument("--methods", default="neighbor,labor,labor:4,labor:16,labor:64,labor:256")
    parser.add_argument("--cache-ratio", type=float, default=0.01)
    parser.add_argument("--pools", default="0.1,0.5")
    parser.add_argument("--communities", type=Path, metavar="FILE.npy")
    parser.add_argument("--mixes", default="0")
    args = parser.parse_args()
    pools = list(map(float, args.pools.split(",")))
    orders: list[dict] = [{}]
    if args.communities is not None:
        orders += [{"seed_order": args.communities, "seed_mix": float(mix)} for mix in args.mixes.split(",")]
    titles = ["method", "seeds", "batches", "nodes a batch", "not in the last", "all, M", "cached, M"]
    table = TextTable("Rows of an epoch", titles + [f"a pool of {pool:g}, M" for pool in pools])
    for method in args.methods.split(","):
        for order in orders:
            found = counted(args, method, order, pools)
            sizes = [f"{found['nodes'] / found['batches']:,.0f}", f"{found['new'] / found['batches']:,.0f}"]
            sums = [f"{found[name] / 1e6:.2f}" for name in ("nodes", "cached", *pools)]
            place = f"by community, {order['seed_mix']:g} mixed" if order else "shuffled"
            table.rows.append([method, place, str(found["batches"]), *sizes, *sums])
    print_tables(table)


def counted(args: argparse.Namespace, method: str, order: dict, pools: list[float]) -> dict:
    """Sums over the second epoch."""
    data = cohort.dataset.open(args.dataset)
    seeds = np.asarray(data.train_ids)
    how = {"batch_size": args.batch_size, "shuffle": True, "device": "cpu", **draws_of(method), **order}
    fanout = list(map(int, args.fanout.split(",")))
    times, reads = np.zeros(data.num_nodes, np.int32), Reads(data.num_nodes)
    found: dict = dict.fromkeys(["batches", "nodes", "new", "cached", *pools], 0)
    with cohort.NeighborLoader(data, fanout, seeds, edge_attr=False, **how) as loader:
        for epoch in range(2):
            in_cache = np.zeros(data.num_nodes, bool)
            in_cache[np.argsort(-times, kind="stable")[: round(args.cache_ratio * data.num_nodes)]] = True
            for batch in loader:
                nodes = batch.n_id.numpy()
                if epoch:
                    rows = reads.count(nodes, in_cache, pools)
                    found = {name: count + rows[name] for name, count in found.items()}
                reads.add(nodes)
                times[nodes] += 1
    return found


def draws_of(method: str) -> dict:
    """A method as arguments of a loader."""
    sampling, *dependencies = method.split(":")
    batches = next((int(each) for each in dependencies if each.isdigit()), 1)
    names = {"layer_dependency": "layers", "importance_sampling": "importance"}
    unknown = {each for each in dependencies if not each.isdigit()} - {*names.values()}
    if unknown:
        raise SystemExit(f"{method}: expected a number, layers or importance after {sampling}, found {min(unknown)}")
    options = {option: name in dependencies for option, name in names.items()}
    return {"sampling": sampling, "batch_dependency": batches, **options}


class Reads:
    """The rows that batches have read, in order, with a number each."""

    def __init__(self, num_nodes: int):
        self._last = np.full(num_nodes, -1)  # of each node's last read; none: -1
        self._batches = [(0, np.zeros(0, np.int64))]  # the number of the first read, and the nodes

    def add(self, nodes: np.ndarray) -> None:
        first = self._batches[-1][0] + len(self._batches[-1][1])
        self._batches.append((first, nodes))
        self._last[nodes] = first + np.arange(len(nodes))

    def count(self, nodes: np.ndarray, in_cache: np.ndarray, pools: list[float]) -> dict:
        """Of a batch, as in the table."""
        not_cached = nodes[~in_cache[nodes]]
        rows = {"batches": 1, "nodes": len(nodes), "cached": len(not_cached)}
        rows["new"] = int(np.count_nonzero(self._last[nodes] < self._batches[-1][0]))
        for pool in pools:
            oldest = self._oldest_kept(round(pool * len(self._last)), in_cache)
            rows[pool] = int(np.count_nonzero(self._last[not_cached] < oldest))
        return rows

    def _oldest_kept(self, room: int, in_cache: np.ndarray) -> int:
        """The first read whose row is in a pool with room for so many, which needs no rows of the cache."""
        for first, nodes in reversed(self._batches):
            numbers = first + np.arange(len(nodes))
            of_pool = numbers[(self._last[nodes] == numbers) & ~in_cache[nodes]]  # no later batch has read them
            if len(of_pool) > room:
                return int(of_pool[len(of_pool) - room]) if room else int(numbers[-1]) + 1
            room -= len(of_pool)
        return 0


if __name__ == "__main__":
    main()
