"""One framework per file: which of its switches carry which flags. Never imports a framework."""
