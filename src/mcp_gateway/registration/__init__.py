"""Servers and tools as they are listed, stored and known to calls."""
