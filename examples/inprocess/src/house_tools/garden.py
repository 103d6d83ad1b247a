"""A FastMCP server as it is, with one tool."""

from typing import Literal

from fastmcp import FastMCP

server = FastMCP("garden", instructions="Knows the beds of the garden.")
_BEDS = {"north": "tomatoes", "south": "lavender"}


@server.tool
async def what_grows(bed: Literal["north", "south"]) -> str:
    """Say what grows in a bed of the garden."""
    return f"In the {bed} bed grows: {_BEDS[bed]}."
