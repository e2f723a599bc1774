"""The options of the commands: what they accept, and their types."""
