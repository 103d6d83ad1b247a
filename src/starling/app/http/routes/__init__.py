"""Routes, one noun a module; they don't know each other."""
