"""Reading of what models write: reasoning, JSON documents, tool calls in text, and names. No other code parses it."""
