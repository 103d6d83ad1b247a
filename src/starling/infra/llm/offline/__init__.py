"""`offline:rules`: rules in place of a model, so that the platform can be tried without API key and network."""
