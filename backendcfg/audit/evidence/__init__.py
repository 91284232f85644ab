"""What shows that a profile holds: measured, not read back."""
