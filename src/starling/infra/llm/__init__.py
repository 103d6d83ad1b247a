"""Model clients: OpenAI-compatible endpoints, LangChain's providers, `offline:rules`; fallback and retries."""
