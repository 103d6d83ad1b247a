"""The nodes of a star. They know the state and their collaborators, never each other."""
