"""GraphBolt's side of bench/layer_peers.py, under its own Python: batches as asked, from the lists of a data set.

    VENV/bin/python bench/layer_graphbolt.py DIR CORES

Writes a line of JSON for each that it reads: {"method": "sample_neighbors", "fanout": [25, 10], "batch_size": 1024,
"seeds": a file of int64 [n]}.
"""

import json
import resource
import sys
import time
from pathlib import Path


def main() -> None:
    out, sys.stdout = sys.stdout, sys.stderr
    import dgl.graphbolt as graphbolt
    import numpy as np
    import torch

    torch.set_num_threads(int(sys.argv[2]))
    lists = (torch.from_numpy(np.load(Path(sys.argv[1]) / f"{name}.npy")) for name in ("indptr", "indices"))
    graph = graphbolt.fused_csc_sampling_graph(*lists)
    for line in sys.stdin:
        asked = json.loads(line)
        batches = torch.from_numpy(np.load(asked["seeds"])).to(graph.indices.dtype).split(asked["batch_size"])
        draw = getattr(graph, asked["method"])
        found = {"seeds": 0, "nodes": 0, "edges": 0}
        start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
        for seeds in batches:
            nodes = seeds
            for fanout in asked["fanout"]:
                drawn = draw(nodes, torch.tensor([fanout])).sampled_csc
                nodes, compacted = graphbolt.unique_and_compact_csc_formats(drawn, nodes)
                found["edges"] += len(compacted.indices)
            found["seeds"] += len(seeds)
            found["nodes"] += len(nodes)
        after = resource.getrusage(resource.RUSAGE_SELF)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        print(json.dumps(found | {"seconds": time.perf_counter() - start, "cpu": cpu}), file=out, flush=True)


if __name__ == "__main__":
    main()
