"""What a run is executed with: its context, its record, and the calls of its models."""
