"""Adapters that several packages use: Postgres, models, the queue, tracing."""
