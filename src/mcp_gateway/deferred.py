"""The imports that the gateway defers until a server is started or called: a quarter of a platform's start.

Servers that were listed before are known without MCP's SDK and without jsonschema-rs.
"""

import asyncio


def session():
    """Return the module of sessions. Imports MCP's SDK."""
    from mcp_gateway.sessions import session

    return session


def transport():
    """Return the module of transports. Imports MCP's SDK."""
    from mcp_gateway.sessions import transport

    return transport


def process_memory():
    """Return the module that measures processes. Imports psutil."""
    from mcp_gateway.sessions import process_memory

    return process_memory


def discovery():
    """Return the module that lists tools. Imports MCP's SDK and jsonschema-rs."""
    from mcp_gateway.registration import discovery

    return discovery


def wiring():
    """Return the module that wires the path of a call. Imports MCP's SDK and jsonschema-rs."""
    from mcp_gateway.path import wiring

    return wiring


def schema_validation():
    """Return the module that validates by JSON schema. Imports jsonschema-rs."""
    from mcp_gateway.schemas import validation as schema_validation

    return schema_validation


def linear_patterns():
    """Return the module that searches for regular expressions in linear time. Imports jsonschema-rs."""
    from mcp_gateway.schemas import linear_patterns

    return linear_patterns


def confusables():
    """Return the module that knows which letters look alike. It reads a megabyte at its import."""
    from confusable_homoglyphs import confusables

    return confusables


def import_all() -> None:
    """Import all of this module's imports; for a thread, while the event loop has other work."""
    discovery()
    wiring()


async def imported() -> None:
    """Wait until everything is imported."""
    await asyncio.to_thread(import_all)
