"""Other libraries' layouts: each module turns a path into a cohort.dataset.graph.Graph."""
