"""A run: from its options to the exit status of its programs."""
