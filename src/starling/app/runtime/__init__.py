"""What a process needs around its work: database, settings file, background tasks."""
