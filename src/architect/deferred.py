"""The imports that the architect defers until somebody asks for them."""


def spec_format():
    """Return the module that reads, writes and compares specs. Imports YAML."""
    from architect import spec_format

    return spec_format
