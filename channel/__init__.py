"""The two-process contract, as far as Python touches it: the folder a channel lives in, and how a slot counts."""

# Where the sampler reads from, in the order of a slot's counts: GPU, other GPU, host memory, slots of batches before.
TIERS = ("local", "peer", "host", "recent")
