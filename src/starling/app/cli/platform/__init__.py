"""What commands ask: the API of a running platform, or the database where none runs."""
