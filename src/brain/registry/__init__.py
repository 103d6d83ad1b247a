"""Epochs: numbered, immutable manifests of what a star is made of, and the cards made from them."""
