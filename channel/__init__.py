"""The two-process contract, as far as Python touches it: the folder a channel lives in."""
