"""Stages that may refuse a call before anything is sent."""
