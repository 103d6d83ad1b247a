"""Custom agents: configured by users, stored by content, bound to an epoch's tools when a run first needs them."""
