"""What does an epoch of a script's own loop take on a CPU, compared with `cohort train`, and beside a busy program?

    python bench/own_loop.py DIR [--rounds 3] [--busy 0,1] [--dropout 0]

Both train GraphSAGE of 64 hidden features on batches of 512 seeds with fanout 10,5. The loop uses PyG's model with
Cohort's layers (cohort.nn.accelerate), by hops and, as most scripts do, on all rows of each batch. The programs take
turns. A line a kind: the seconds of an epoch (the median of all rounds, without each run's first epoch) and the ratio
to `cohort train`. No variable is set.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

EPOCHS = 4
LOOP = """
import sys, time
import torch.nn.functional as F
from torch.optim import Adam
from torch_geometric.nn import GraphSAGE
import cohort_gnn as cohort

data, hops = cohort.dataset.open(sys.argv[1]), sys.argv[3] == "hops"
ids = data.train_ids
loader = cohort.NeighborLoader(data, [10, 5], input_nodes=ids, batch_size=512, shuffle=True, device="cpu")
model = GraphSAGE(data.feature_dim, 64, num_layers=2, out_channels=data.num_classes, dropout=float(sys.argv[4]))
cohort.nn.accelerate(model)
optimizer = Adam(model.parameters(), lr=0.003)
for epoch in range(int(sys.argv[2])):
    begin = time.monotonic()
    for batch in loader:
        names = {"num_sampled_nodes_per_hop": "num_sampled_nodes", "num_sampled_edges_per_hop": "num_sampled_edges"}
        sizes = {name: getattr(batch, of) for name, of in names.items()} if hops else {}
        optimizer.zero_grad()
        out = model(batch.x, batch.edge_index, **sizes)[: batch.batch_size]
        F.cross_entropy(out, batch.y[: batch.batch_size]).backward()
        optimizer.step()
    print(time.monotonic() - begin, flush=True)
"""


def epochs_of_train(data: Path, dropout: str) -> list[float]:
    """Seconds of the epochs of a run, without the first."""
    with tempfile.TemporaryDirectory() as out:
        options = ["--device", "cpu", "--fanout", "10,5", "--batch-size", "512", "--hidden", "64", "--dropout", dropout]
        command = [sys.executable, "-m", "cohort_gnn", "train", str(data), *options]
        subprocess.run([*command, "--epochs", str(EPOCHS), "--quiet", "--overwrite", "--out", out], check=True)
        return [epoch["seconds"] for epoch in json.loads((Path(out) / "summary.json").read_text())["epochs"]][1:]


def epochs_of_loop(data: Path, kind: str, dropout: str) -> list[float]:
    """The same of the script."""
    command = [sys.executable, "-W", "ignore", "-c", LOOP, str(data), str(EPOCHS), kind, dropout]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [float(line) for line in said.splitlines()][1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--busy", default="0,1", help="numbers of other programs, each of which keeps a core busy")
    parser.add_argument("--dropout", default="0", help="probability, on the input of the second layer")
    args = parser.parse_args()
    for num_busy in map(int, args.busy.split(",")):
        others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(num_busy)]
        found: dict[str, list[float]] = {"cohort train": [], "loop, by hops": [], "loop": []}
        try:
            for _ in range(args.rounds):
                found["cohort train"] += epochs_of_train(args.data, args.dropout)
                found["loop, by hops"] += epochs_of_loop(args.data, "hops", args.dropout)
                found["loop"] += epochs_of_loop(args.data, "all", args.dropout)
        finally:
            for other in others:
                other.kill()
        base = statistics.median(found["cohort train"])
        for kind, seconds in found.items():
            median = statistics.median(seconds)
            print(f"{num_busy} busy: {kind:14} {median:.3f} s an epoch, {median / base:.2f} times", flush=True)


if __name__ == "__main__":
    main()
