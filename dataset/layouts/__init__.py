"""Other libraries' layouts: each module turns a path into a cohort.dataset.layouts.graph.Graph."""
