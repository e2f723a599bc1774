"""Results of a run: read, as tables, as a page."""
