"""What encoded rows serve beyond the features of a graph: each module stands alone."""
