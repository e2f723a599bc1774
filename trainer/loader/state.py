"""What NeighborLoader.state_dict() holds."""

import hashlib

import numpy as np

from cohort_gnn.base.errors import CohortError


def digest_of(numbers: np.ndarray) -> str:
    """Of an int64 array."""
    return hashlib.sha256(np.ascontiguousarray(numbers, dtype="<i8").data).hexdigest()


def checked_position(state: dict, identity: dict, num_steps: int) -> list[int]:
    """[epoch, steps done of it] of a state.

    Args:
        identity: of the loader that takes it up, see NeighborLoader.
        num_steps: batches that this loader has in an epoch.

    Raises:
        CohortError: the state is none, or that of a loader of other batches.
    """
    place = "load_state_dict"
    if not isinstance(state, dict) or not identity.keys() | {"epoch", "step"} <= state.keys():
        raise CohortError(place, "what state_dict() of a NeighborLoader has returned", repr(state)[:200])
    for name, expected in identity.items():
        if state[name] != expected:
            hint = "make the loader with the arguments of the one whose state it is"
            raise CohortError(f"{place}: {name}", f"{expected!r}, as this loader has it", repr(state[name]), hint)
    for name, most in (("epoch", 2**63 - 1), ("step", num_steps)):
        if type(state[name]) is not int or not 0 <= state[name] <= most:
            raise CohortError(f"{place}: {name}", f"an integer in [0, {most}]", repr(state[name]))
    return [state["epoch"], state["step"]]
