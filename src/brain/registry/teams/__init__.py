"""Teams: their stars, stored by content, bound to an epoch's tools when a run first needs them."""
