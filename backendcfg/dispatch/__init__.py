"""One record per provider, and which one serves a call."""
