"""From a stack of layers and a host to a plan. Pure: opens, reads and calls nothing outside."""
