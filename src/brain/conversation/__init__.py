"""Conversations: typed states on branches, and how they are rendered for a model."""
