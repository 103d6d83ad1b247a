"""The socket on which the API listens. Opened first: a port that is taken is an error before anything is started."""

import socket

from starling.core.errors import ConfigurationError


def bind(host: str, port: int, *, write_seconds: float = 30.0) -> socket.socket:
    """Return a socket that listens; a peer that reads nothing for `write_seconds` is disconnected.

    Raises ConfigurationError where the port is taken or the host isn't ours.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # named, or asyncio sets no TCP_NODELAY
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux: connections inherit it
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(write_seconds * 1000))
    try:
        listener.bind((host.strip("[]"), port))
    except OSError as error:
        listener.close()
        raise ConfigurationError(
            f"Can't listen on {host} port {port}: {error.strerror}.",
            "Stop what uses the port, or choose another one with PORT or --port.",
        ) from None
    listener.listen(2048)
    return listener
