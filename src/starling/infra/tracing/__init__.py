"""Traces over OTLP, to Langfuse or any collector. The only package that imports opentelemetry."""
