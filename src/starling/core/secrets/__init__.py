"""Secrets in texts: those that the platform knows, and texts that look like keys."""
