"""Who may do what: keys, their revocation, and kill switches."""
