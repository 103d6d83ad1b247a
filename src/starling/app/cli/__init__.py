"""The command line. Commands are imported when they are chosen, so that `--help` is quick."""

import sys
from importlib import import_module

from starling.app.cli.stop_signals import StoppedBySignal, install_signal_handlers


def main() -> None:
    """Run the command line and exit with 0 (done), 1 (failed), 2 (wrong usage or settings), 3 (database or API away).

    4 where a build waits for an answer that the command can't give; 130 after Ctrl-C, also while it is imported; 143
    after SIGTERM, except for services, which exit with 0.
    """
    install_signal_handlers()
    try:
        import_module("starling.app.cli.root_command").run()
    except StoppedBySignal as stopped:
        sys.exit(stopped.exit_code)
