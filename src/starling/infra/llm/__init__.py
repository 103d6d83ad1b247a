"""Adapters behind `ModelClient`: OpenAI-compatible endpoints, LangChain's providers, `offline:rules`."""
