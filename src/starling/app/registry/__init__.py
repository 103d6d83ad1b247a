"""Services that change servers and agents, and the follower that applies new epochs."""
