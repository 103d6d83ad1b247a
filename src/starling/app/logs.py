"""The one place that configures logging: readable lines on stderr."""

import logging
from typing import Final

from rich.console import Console
from rich.logging import RichHandler

_QUIET: Final = ("aiohttp", "alembic", "asyncio", "fastmcp", "httpcore", "httpx", "mcp", "procrastinate", "uvicorn")


def configure_logs(level: str, console: Console) -> None:
    """Log what is at least of `level` to `console`: in columns on a terminal, else one plain line each.

    Libraries speak from WARNING on, or at DEBUG about everything from INFO on.
    """
    logging.basicConfig(level=level, handlers=[_handler(console)], force=True)
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.INFO if level == "DEBUG" else logging.WARNING)
    logging.getLogger("psycopg").setLevel(logging.ERROR)  # it warns of each connection that a cancelled query costs
    logging.getLogger("psycopg.pool").setLevel(logging.WARNING)


def _handler(console: Console) -> logging.Handler:
    if console.is_terminal:
        handler: logging.Handler = RichHandler(console=console, show_path=False, log_time_format="%X")
        handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
        return handler
    handler = logging.StreamHandler(console.file)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    return handler
