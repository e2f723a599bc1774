"""The plan: which rows and lists lie where."""
