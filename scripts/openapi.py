"""Prints the description of the API as JSON, as `/openapi.json` has it: the console's types are generated from it."""

import json

from starling.app.http.api_routes import described

print(json.dumps(described()))
