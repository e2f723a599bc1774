"""The options of a run, their types and what depends on them; the names of its files. Imports no torch."""
