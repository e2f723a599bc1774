"""Which rows live in GPU memory: access counts, budgets, and the plan that follows from them."""

from cohort_gnn.cache.plan.budget import MemoryNeeds, budgets
from cohort_gnn.cache.plan.planner import (
    Counts,
    PlanEdges,
    PlanLinks,
    PlanLists,
    PlanRows,
    cliques_named,
    holds_all_raw_rows,
    load_counts,
    plan,
    stored_row_bytes,
)

__all__ = [
    "Counts",
    "PlanEdges",
    "PlanLinks",
    "PlanLists",
    "MemoryNeeds",
    "PlanRows",
    "budgets",
    "cliques_named",
    "holds_all_raw_rows",
    "load_counts",
    "plan",
    "stored_row_bytes",
]
