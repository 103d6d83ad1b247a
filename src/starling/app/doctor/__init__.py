"""What may be wrong with a platform and its surroundings, one check a module."""
