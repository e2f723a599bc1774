"""Loads batches from the sampler, and trains models on them."""
