"""The imports that the architect defers until somebody asks for them."""


def spec_diff():
    """Return the module that compares specs. Imports YAML."""
    from architect import spec_diff

    return spec_diff
