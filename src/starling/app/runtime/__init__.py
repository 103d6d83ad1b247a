"""Parts of every process: database start-up, settings file, retention, outbox relay, background tasks."""
