"""Built-in models, their targets and the file of their weights."""
