"""Adapters that several rooms use."""
