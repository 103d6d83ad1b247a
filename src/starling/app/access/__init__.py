"""Access control: keys, their revocation, and kill switches."""
