"""The worker: claims runs, executes them and renews their leases."""
