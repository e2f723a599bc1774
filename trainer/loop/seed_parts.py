"""Which rank trains on which seeds, where ``cohort dataset partition`` divided the nodes into parts."""

import numpy as np

HASH_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio, odd


def seeds_by_rank(ids: np.ndarray, parts: str, cliques: list[list[int]]) -> tuple[np.ndarray, list[int]]:
    """The seeds in the order of their ranks, int64 [n], and how many each rank has.

    Clique c takes the seeds of part c; inside a clique a hash of the node's number chooses the rank.

    Args:
        ids: int64 [n].
        parts: the file of parts, int32 [V].
        cliques: every rank once.
    """
    part_of = np.load(parts, mmap_mode="r")[ids]
    chosen = (ids.astype(np.uint64) * HASH_MULTIPLIER) >> np.uint64(32)
    rank_of = np.empty(len(ids), np.int64)
    for part, ranks in enumerate(cliques):
        own = part_of == part
        rank_of[own] = np.asarray(ranks)[(chosen[own] % np.uint64(len(ranks))).astype(np.int64)]
    sizes = np.bincount(rank_of, minlength=sum(map(len, cliques)))
    return ids[np.argsort(rank_of, kind="stable")], sizes.tolist()
