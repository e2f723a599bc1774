"""Time and memory of the planner on a synthetic graph: python bench/plan_scale.py --nodes 111000000 --gpus 8.

Degrees and counts follow a power law of exponent 2; nothing is sampled. One line: nodes, seconds, peak memory, rows.
"""

import argparse
import resource
import time

import numpy as np

from cohort_gnn.cache.planner import Counts, PlanLinks, PlanLists, PlanRows, cliques_named, plan


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=10_000_000)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--cliques", default="all")
    parser.add_argument("--ratio", type=float, default=0.05, help="cache of each GPU as a share of the features")
    parser.add_argument("--row-bytes", type=int, default=512)
    parser.add_argument("--counts-per-clique", action="store_true", help="other counts for each clique")
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    degrees = np.minimum(5 / (1 - rng.random(args.nodes, dtype=np.float32)) ** 0.5, 1e5).astype(np.int64)
    indptr = np.concatenate([[0], np.cumsum(degrees)])
    cliques = cliques_named(args.cliques, args.gpus)
    counts = []
    for _ in cliques if args.counts_per_clique else [None]:
        reads = rng.poisson(np.minimum(degrees, 1000) / 10).astype(np.uint32)
        edges_read = (reads // 4).astype(np.uint64) * np.minimum(degrees, 10).astype(np.uint64)
        counts.append(Counts(200, reads, reads // 4, edges_read))
    budget = int(args.ratio * args.nodes * args.row_bytes)
    links = PlanLinks((1500e9, 360e9, 51e9))
    begin = time.perf_counter()
    placed = plan(
        [PlanRows(args.nodes, args.row_bytes)],
        [PlanLists(indptr, 4)],
        counts,
        cliques=cliques,
        budget_bytes=[budget] * args.gpus,
        links=links,
    )
    seconds = time.perf_counter() - begin
    peak_gb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    held = sum(len(placed.gpu(i).features.nodes) + len(placed.gpu(i).topology.nodes) for i in range(args.gpus))
    took = f"{seconds:.1f} s, {peak_gb:.1f} GB at the peak"
    print(f"{args.nodes:,} nodes, {args.gpus} GPUs: {took}, {held:,} rows and lists")


if __name__ == "__main__":
    main()
