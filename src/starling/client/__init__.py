"""Conversations from Python: what `import starling` offers, over the HTTP API of a running platform."""
