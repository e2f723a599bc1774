"""One hex digest a batch: the proof that two devices agree."""

import hashlib

import torch

from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.trainer.loader import _native
from cohort_gnn.trainer.loader.source import AllRows, BatchSource, tables_of


def digest(batch, all_rows: AllRows = None) -> str:
    """SHA-256 over the bytes of n_id, edge_index, x, y and, where there is one, edge_attr of a batch or a slot, in that
    order; 32 hex digits of it. The batch has one node type; a slot has x and edge_attr of each type, in their order.

    Args:
        all_rows: the rows that a slot names, see BatchSource.all_rows.
    """
    sha = hashlib.sha256()
    if isinstance(batch, _native.HeldSlot):
        tables = tables_of(batch, all_rows)
        edge_tables = [batch.edge_table(number) for number in range(len(batch.edges_of_relations))]
    else:
        tables, edge_tables = [batch.x], [getattr(batch, "edge_attr", None)]
    there = (table for table in (*tables, batch.y, *edge_tables) if table is not None)
    for tensor in (batch.n_id, batch.edge_index, *there):
        sha.update(tensor.contiguous().view(torch.uint8).cpu().numpy().data)
    return sha.hexdigest()[:32]


def print_digests(sources: list[BatchSource], run: dict) -> None:
    """Prints "epoch:step nodes edges digest" for the first batches of as many epochs as it takes.

    Args:
        sources: one a rank; they are read in turn, so that the batches come in the order of one rank.
        run: the contents of run.json.
    """
    options = run["trainer"]
    data = open_dataset(run["sampler"]["dataset"])
    ids, fanout = data.types.numbered(data.train_ids, options["fanout"])
    seed_sets = [source.add_seeds(ids) for source in sources]
    all_rows = [source.all_rows(data.path) for source in sources]
    left, epoch = options["num_batches"], 0
    while left > 0:
        steps = min(left, -(-len(ids) // options["batch_size"]))
        shares = []
        for source, seed_set in zip(sources, seed_sets, strict=True):
            which = source.request(seed_set, fanout, options["batch_size"], epoch, shuffle=True)
            shares.append(source.slots(which))
        for step in range(steps):
            rank = step % len(shares)
            slot = next(shares[rank])
            print(_line(epoch, slot, digest(slot, all_rows[rank])), flush=True)
            del slot
        for share in shares:
            share.close()
        left, epoch = left - steps, epoch + 1


def _line(epoch: int, slot, hex_digits: str) -> str:
    return f"{epoch}:{slot.step} {slot.n_id.shape[0]} {slot.edge_index.shape[1]} {hex_digits}"
