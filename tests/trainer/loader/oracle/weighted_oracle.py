"""Draws by weight in plain Python: what sampler/weighted_draw.h says, one unit range after the other."""

from itertools import accumulate, pairwise

from typed_oracle import random_64

MASS = 2**32 - 1


def cumulative_of(weights) -> list[int]:
    """Units of the edges of a list, up to and with each."""
    weights = [float(weight) for weight in weights]
    total, left = sum(weights), sum(weight > 0 for weight in weights)
    cumulative, before, so_far = [], 0, 0.0
    for weight in weights:
        so_far += weight
        if weight > 0:
            left -= 1
            before = min(max(int(MASS * (so_far / total)), before + 1), MASS - left)
        cumulative.append(before)
    return cumulative


def weighted_positions(
    key: int, node: int, hop: int, weights, allowed: list[int], fanout: int, relation=0
) -> list[int]:
    """Those of the allowed edges of a list that are drawn, as places in `allowed`."""
    if fanout < 0:
        return list(range(len(allowed)))
    units = [end - begin for begin, end in pairwise([0, *cumulative_of(weights)])]
    free = {place: units[position] for place, position in enumerate(allowed) if units[position]}
    drawn = []
    for pick in range(min(fanout, len(free))):
        unit = random_64(key, node, hop << 48 | relation << 40 | pick) * sum(free.values()) >> 64
        ends = accumulate(free.values())
        drawn.append(next(place for place, end in zip(free, ends, strict=True) if unit < end))
        del free[drawn[-1]]
    return sorted(drawn)
