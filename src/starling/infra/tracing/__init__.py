"""Traces over OTLP, to Langfuse or to any collector. The only home of opentelemetry."""
