"""The vendors' libraries for devices: found, opened, and asked what they are."""
