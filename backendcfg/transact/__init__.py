"""All or nothing: knobs, the journal, and generations on disk. Standard library only."""
