"""What OpenAI's chat and responses APIs are answered with: no web framework is imported here."""
