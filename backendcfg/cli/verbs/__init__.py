"""One verb per file; the file name is the verb, with `_` for `-`."""
