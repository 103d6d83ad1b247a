"""The path of every tool call: one behaviour a file, each wrapped around the next."""
