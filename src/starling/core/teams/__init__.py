"""Teams: their specs, the stars that run, builds and proofs."""
