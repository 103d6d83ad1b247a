"""The imports that the HTTP server defers until the platform is ready, or until the first request."""


def api_routes():
    """Return the module of all routes but those of health. Builds their schemas, a tenth of a start."""
    from starling.app.http import api_routes

    return api_routes
