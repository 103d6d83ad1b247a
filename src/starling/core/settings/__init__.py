"""Settings: their schema, and where they are read from."""
