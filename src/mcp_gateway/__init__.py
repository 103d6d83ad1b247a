"""The one way to MCP servers: their configuration, sessions, tools, and the path of a call."""
