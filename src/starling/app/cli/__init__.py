"""The command line. `--help` answers at once: what a command needs is imported when it is chosen."""

from starling.app.cli.root_command import main

__all__ = ["main"]
