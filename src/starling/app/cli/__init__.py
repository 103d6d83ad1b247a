"""The command line. Commands are imported when they are chosen, so that `--help` is quick."""

from starling.app.cli.root_command import main

__all__ = ["main"]
