"""A program that owns an embedded Postgres: prints its process id and address, then lives until its input ends."""

import json
import sys
from pathlib import Path

from starling.infra.postgres.embedded.server import EmbeddedPostgres

if __name__ == "__main__":
    with EmbeddedPostgres(Path(sys.argv[1]), durable=False) as server:
        print(json.dumps({"pid": server.pid, "url": server.url}), flush=True)
        sys.stdin.read()
