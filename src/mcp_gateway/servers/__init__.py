"""The MCP servers that ship with the platform."""
