"""bench/layer_rows.py counts rows beside a pool as one does that always forgets the row whose last read is oldest."""

from collections import OrderedDict

import numpy as np
from documents import ROOT, module

Reads = module(ROOT / "bench/layer_rows.py").Reads


def test_a_pool_has_the_rows_read_last():
    random, num_nodes, pools = np.random.default_rng(1), 200, [0.0, 0.1, 0.35, 1.0]
    in_cache = random.random(num_nodes) < 0.2
    reads, kept = Reads(num_nodes), {pool: OrderedDict[int, None]() for pool in pools}
    before: set[int] = set()
    for _ in range(30):
        nodes = random.permutation(num_nodes)[: random.integers(1, 80)]
        not_cached = nodes[~in_cache[nodes]].tolist()
        expected: dict = {"batches": 1, "nodes": len(nodes), "cached": len(not_cached)}
        expected["new"] = len(set(nodes.tolist()) - before)
        for pool, rows in kept.items():
            expected[pool] = sum(node not in rows for node in not_cached)
            for node in not_cached:
                rows.pop(node, None)
                rows[node] = None
            while len(rows) > pool * num_nodes:
                rows.popitem(last=False)
        assert reads.count(nodes, in_cache, pools) == expected
        reads.add(nodes)
        before = set(nodes.tolist())
