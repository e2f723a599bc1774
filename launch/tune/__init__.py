"""cohort tune: short runs that find the fastest options."""
