"""The imports that reading a model's output defers: most answers are read without them."""


def json_repair():
    """Return the library that repairs JSON, for answers that no other reading fits."""
    import json_repair

    return json_repair


def json_schemas():
    """Return the module that checks values against JSON schemas, for tool calls written as text."""
    from starling.core.json_schemas import compiled

    return compiled
