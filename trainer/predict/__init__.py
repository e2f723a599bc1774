"""Scores of every node, layer by layer."""
