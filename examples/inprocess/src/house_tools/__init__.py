"""Tools for Starling that run in the platform's own process."""
