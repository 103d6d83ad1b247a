"""How runs end: cancellation, termination and the final result."""
