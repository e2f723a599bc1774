"""Measurements of parts: batches, steps, digests."""
