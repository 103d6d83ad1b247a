"""The worker: claims runs, executes them and keeps their leases."""
