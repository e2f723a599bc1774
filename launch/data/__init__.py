"""Commands on data sets that need the codecs: prepare, derive, shard."""
