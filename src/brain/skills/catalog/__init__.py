"""The skills of a tenant as people manage them: listed, shown, retired, restored, exported and imported."""
