"""Starling: a self-extending supervisor swarm platform."""
