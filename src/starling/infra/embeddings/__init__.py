"""Adapters of the `Embedder` port, and the cache of vectors in Postgres."""
