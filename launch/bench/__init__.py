"""cohort bench: measurements of parts."""
