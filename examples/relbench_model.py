"""RelBench's own model on batches of Cohort: python examples/relbench_model.py FOLDER TASK [EPOCHS]

FOLDER is a data set in RelBench's format, TASK one of its tasks of two classes. pip install relbench pytorch-frame; the
batches are disjoint and in time, and neither pyg-lib nor torch-sparse is needed.
"""

import sys

import torch
import torch.nn.functional as F
from relbench.load import load_dataset
from relbench.modeling.graph import get_node_train_table_input, make_pkey_fkey_graph
from relbench.modeling.nn import HeteroEncoder, HeteroGraphSAGE, HeteroTemporalEncoder
from relbench.modeling.utils import get_stype_proposal
from torch import Tensor, nn

import cohort_gnn as cohort

CHANNELS, HOPS = 32, [16, 8]


class Model(nn.Module):
    """Scores of the seeds, float32 [seeds], of batches of `graph`, whose rows are those of a database.

    Args:
        stats: of the columns, as RelBench makes them.
    """

    def __init__(self, graph, stats):
        super().__init__()
        columns = {name: graph[name].tf.col_names_dict for name in graph.node_types}
        self.graph, self.timed = graph, [name for name in graph.node_types if "time" in graph[name]]
        self.encoder = HeteroEncoder(
            CHANNELS, columns, stats, torch_frame_model_kwargs={"channels": 32, "num_layers": 2}
        )
        self.ages = HeteroTemporalEncoder(self.timed, CHANNELS)
        self.gnn = HeteroGraphSAGE(graph.node_types, graph.edge_types, CHANNELS, num_layers=len(HOPS))
        self.head = nn.Linear(CHANNELS, 1)

    def forward(self, batch, entity: str) -> Tensor:
        rows = {name: batch[name].n_id for name in self.graph.node_types}
        x = self.encoder({name: self.graph[name].tf[ids] for name, ids in rows.items()})
        times = {name: self.graph[name].time[rows[name]] for name in self.timed}
        ages = self.ages(batch[entity].seed_time, times, {name: batch[name].batch for name in self.timed})
        x = {name: own + ages[name] if name in ages else own for name, own in x.items()}
        return self.head(self.gnn(x, batch.edge_index_dict)[entity][: batch[entity].batch_size]).squeeze(1)


def main(folder: str, name: str, epochs: int = 5) -> None:
    torch.manual_seed(0)
    task = load_dataset(folder).load_task(name)
    database = task.get_db()  # up to the time of the test
    graph, stats = make_pkey_fkey_graph(database, get_stype_proposal(database))
    entity, rows = task.entity_table, {split: task.get_table(split) for split in ("train", "val", "test")}
    inputs = {split: get_node_train_table_input(table, task) for split, table in rows.items()}
    how = {"time_attr": "time", "batch_size": 128, "device": "cpu"}
    train = cohort.NeighborLoader(
        graph, HOPS, inputs["train"].nodes, input_time=inputs["train"].time, shuffle=True, **how
    )
    others = {split: train.with_nodes(inputs[split].nodes, input_time=inputs[split].time) for split in ("val", "test")}
    model = Model(graph, stats)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    def predicted(split: str):
        model.eval()
        with torch.no_grad():
            return torch.cat([model(batch, entity).sigmoid() for batch in others[split]]).numpy()

    for epoch in range(epochs):
        model.train()
        for batch in train:
            loss = F.binary_cross_entropy_with_logits(
                model(batch, entity), inputs["train"].target[batch[entity].input_id]
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: validation {task.evaluate(predicted('val'), rows['val'])}")
    print(f"test: {task.evaluate(predicted('test'))}")
    train.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
