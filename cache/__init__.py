"""Which rows live in GPU memory: access counts, budgets, and the plan that follows from them."""

from cohort_gnn.cache.plan.budget import MemoryNeeds, budgets
from cohort_gnn.cache.plan.planner import (
    Counts,
    Edges,
    Links,
    Lists,
    Rows,
    cliques_named,
    holds_all_raw_rows,
    load_counts,
    plan,
    stored_row_bytes,
)

__all__ = [
    "Counts",
    "Edges",
    "Links",
    "Lists",
    "MemoryNeeds",
    "Rows",
    "budgets",
    "cliques_named",
    "holds_all_raw_rows",
    "load_counts",
    "plan",
    "stored_row_bytes",
]
