"""Processes that are bound to cores: several instances of one command on one machine."""
