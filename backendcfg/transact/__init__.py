"""All or nothing: switches, the journal, and generations on disk. Standard library only."""
