"""What a run is made of: its options, their types and what depends on them; names of its files. Without torch."""
