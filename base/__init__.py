"""Helpers that every component uses."""

from cohort_gnn.base import log  # noqa: F401 (scripts hear nothing unless they ask)
