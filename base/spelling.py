"""What a misspelled name was meant to be."""

import difflib
import re
from collections.abc import Iterable

CUTOFF = 0.72  # of difflib's ratio: two swapped letters of four have 0.75; cpu is no tpu
# What other programs call things: their word -> ours.
ELSEWHERE = {
    "gpu": "cuda",
    "learning-rate": "lr",
    "num-neighbors": "fanout",
    "hidden-channels": "hidden",
    "hidden-dim": "hidden",
    "num-epochs": "epochs",
    "max-epochs": "epochs",
    "reverse-edges": "reverse",  # in Python
    "output": "out",
    "graphsage": "sage",
}


def nearest(word: str, names: Iterable[str]) -> str | None:
    """The name that was meant, whatever its case and its dashes; None where no name is near.

    >>> nearest("--epoch", ["--epochs", "--hidden"]), nearest("GCN", ["sage", "gcn"]), nearest("gpu", ["cuda", "cpu"])
    ('--epochs', 'gcn', 'cuda')
    """
    by_folded = {_folded(name): name for name in names}
    folded = _folded(word)
    for meant in (folded, ELSEWHERE.get(folded)):
        if meant in by_folded:
            return by_folded[meant]
    near = difflib.get_close_matches(folded, by_folded, 1, CUTOFF)
    return by_folded[near[0]] if near else None


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """The hint "did you mean NAME?"; "" where no name is near."""
    meant = nearest(word, names)
    return f"did you mean {meant}?" if meant else ""


def as_known(word: str, names: Iterable[str]) -> str:
    """The name that differs from the word in case at most; the word itself where there is none, or more than one."""
    matches = [name for name in names if name.lower() == word.lower()]
    return matches[0] if len(matches) == 1 else word


def _folded(word: str) -> str:
    return re.sub(r"[-_ ]+", "-", word.lower()).strip("-")
