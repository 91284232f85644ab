"""What is in force in this process: the base, the open scopes, and who owns each switch."""
