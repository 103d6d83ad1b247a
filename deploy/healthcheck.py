"""The health check of the image: exits with 0 if this container's API or worker answers `/health` with 200, else 1."""

import http.client
import os
import sys

_SECONDS = 4


def main() -> int:
    """Ask the worker's port where one is set, else the API's."""
    port = int(os.environ.get("STARLING_WORKER_PORT") or os.environ.get("PORT") or 8000)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_SECONDS)
    try:
        connection.request("GET", "/health")
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        print(f"No answer from port {port}: {error}", file=sys.stderr)
        return 1
    if status != http.client.OK:
        print(f"Port {port} answers {status}.", file=sys.stderr)
    return int(status != http.client.OK)


if __name__ == "__main__":
    sys.exit(main())
