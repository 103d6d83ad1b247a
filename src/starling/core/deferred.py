"""The imports that reading a model's output defers: most answers are read without them."""


def json_repair():
    """Return the library that repairs JSON, for answers that no other reading fits."""
    import json_repair

    return json_repair


def jsonschema():
    """Return the library that validates by JSON schema, and what it resolves by, for tool calls written as text."""
    import jsonschema
    from referencing import Registry, exceptions

    return jsonschema, Registry, exceptions
