"""From a wish to an active team."""
