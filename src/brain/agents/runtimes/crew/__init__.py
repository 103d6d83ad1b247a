"""The runtime of CrewAI: imported on first use, off the event loop."""
