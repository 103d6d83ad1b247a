"""The composition root and the edges: HTTP, command line, worker."""
