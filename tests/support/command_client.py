"""Stands in for the installed `starling`: `command_client.py SOCKET ARGUMENT...` has the command server run a command.

The command gets this process's folder, environment and standard streams; SIGINT and SIGTERM are passed on to it, and
its exit code is this process's. It is run with `python -I -S`, which starts in a fiftieth of a second.
"""

import json
import os
import signal
import socket
import struct
import sys

_STREAMS = (0, 1, 2)
_NUMBER = struct.Struct("!i")


def main() -> int:
    """Run the command and return its exit code."""
    pids: list[int] = []
    signals: list[int] = []

    def forward(number: int, _: object) -> None:
        for pid in pids:
            os.kill(pid, number)
        if not pids:
            signals.append(number)  # it is not started yet

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, forward)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(sys.argv[1])
        words = ["starling", *sys.argv[2:]]
        request = {"arguments": words, "folder": os.getcwd(), "environment": dict(os.environ)}  # noqa: PTH109
        socket.send_fds(connection, [json.dumps(request).encode()], _STREAMS)
        pids.append(_received(connection))
        for number in signals:
            os.kill(pids[0], number)
        return _received(connection)


def _received(connection: socket.socket) -> int:
    return _NUMBER.unpack(connection.recv(_NUMBER.size, socket.MSG_WAITALL))[0]


if __name__ == "__main__":
    code = main()
    sys.exit(128 - code if code < 0 else code)
