"""Loading batches from the sampler, and training on them."""
