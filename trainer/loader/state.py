"""The position of a loader, and what its state_dict() holds."""

import hashlib

import numpy as np

from cohort_gnn.base.errors import CohortError


def digest_of(numbers: np.ndarray) -> str:
    """The SHA-256 of an int64 array, in hex digits."""
    return hashlib.sha256(np.ascontiguousarray(numbers, dtype="<i8").data).hexdigest()


def checked_position(state: dict, identity: dict, num_steps: int) -> list[int]:
    """[epoch, steps done of it] of a state.

    Args:
        identity: of the loader that takes it up, see NeighborLoader.
        num_steps: batches that this loader has in an epoch.

    Raises:
        CohortError: this is no state, or the state of a loader with other batches.
    """
    place = "load_state_dict"
    if not isinstance(state, dict) or not {"epoch", "step", "seed", "input_nodes"} <= state.keys():
        raise CohortError(place, "what state_dict() of a NeighborLoader has returned", repr(state)[:200])
    for name in [*identity, *(state.keys() - identity.keys() - {"epoch", "step"})]:  # some loaders have more members
        expected, actual = identity.get(name), state.get(name)
        if actual != expected:
            hint = "make the loader with the arguments of the one whose state it is"
            raise CohortError(f"{place}: {name}", f"{expected!r}, as this loader has it", repr(actual), hint)
    for name, most in (("epoch", 2**63 - 1), ("step", num_steps)):
        if type(state[name]) is not int or not 0 <= state[name] <= most:
            raise CohortError(f"{place}: {name}", f"an integer in [0, {most}]", repr(state[name]))
    return [state["epoch"], state["step"]]


class Stateful:
    """A loader whose position can be kept and taken up again.

    Attributes:
        epoch: the next one; set it to repeat or skip epochs.
    """

    epoch: int = 0
    _under_way: list[int] | None = None  # epoch of the iteration begun last, batches yielded; None: it is over
    _loaded: list[int] | None = None  # the same of a state, with which the next iteration begins

    def state_dict(self) -> dict:
        """The loader's position, as numbers and text: after the last batch, or at the start of the next epoch.

        Follows the convention of torch's stateful loaders: save the state in your checkpoint together with the model.
        It is the same on every rank.
        """
        epoch, step = self.epoch, 0
        if self._loaded and self._loaded[0] == self.epoch:
            epoch, step = self._loaded
        elif self._under_way and self._under_way[0] == self.epoch - 1:
            epoch, step = self._under_way
        return self._identity() | {"epoch": int(epoch), "step": step}

    def load_state_dict(self, state: dict) -> None:
        """The next iteration yields the rest of the epoch of ``state``; earlier batches are not sampled again.

        Raises:
            CohortError: the state belongs to a loader with other batches.
        """
        self._loaded = checked_position(state, self._identity(), len(self))
        self.epoch, self._under_way = self._loaded[0], None

    def _identity(self) -> dict:
        """What the batches follow from, but for the data set itself."""
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError
