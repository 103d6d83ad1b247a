"""Checks of the installation and its surroundings, one check a module; `runner` runs all of them."""
