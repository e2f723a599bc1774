"""Parts of a graph."""
