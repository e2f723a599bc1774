"""Graphs of others become data sets."""
