"""Which rows live in GPU memory: access counts, budgets, and the plan that follows from them."""
