"""The command line: one verb per file, one way out."""
