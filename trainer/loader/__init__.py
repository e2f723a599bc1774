"""cohort.NeighborLoader."""
