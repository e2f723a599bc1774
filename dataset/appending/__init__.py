"""`cohort dataset append`: new nodes and edges in a data set that is there."""
