"""The command `cohort`: starts the programs, watches them, cleans up after them."""
