"""The `mcpServers` document: its servers, options, references and comments."""
