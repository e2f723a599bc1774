"""Random data sets."""
