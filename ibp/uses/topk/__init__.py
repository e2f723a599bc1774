"""An exact search for the best rows of an encoded table."""
