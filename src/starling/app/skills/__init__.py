"""What the API and commands do with skills."""
