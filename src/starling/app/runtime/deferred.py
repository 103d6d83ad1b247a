"""The import that the runtime defers, for platforms with a settings file."""


def yaml_file():
    """Return the module that reads YAML. Imports PyYAML."""
    from starling.app.runtime import yaml_file

    return yaml_file
