"""The imports that telemetry defers: a process that logs nothing needs neither."""


def log_format():
    """Return the module that formats log lines. Imports structlog, and with it all of Rich."""
    from starling.app.telemetry import log_format

    return log_format


def rich_handler():
    """Return Rich's handler of log records, for a terminal."""
    from rich.logging import RichHandler

    return RichHandler
