"""Stages that change, keep or follow what a call returned."""
