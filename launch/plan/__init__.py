"""cohort plan: the plan of the cache, as tables."""
