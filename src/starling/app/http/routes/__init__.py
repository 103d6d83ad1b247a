"""Routes, one noun per module; they don't import each other."""
