"""The numbered items of a run's stream, in their published shapes. Fields may be added, never removed."""
