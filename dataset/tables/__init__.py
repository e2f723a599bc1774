"""Tables in files: text or Parquet, read by Arrow, a block at a time."""
