"""What `prove`, `compare` and `verify --measure` found: as data, in sentences, and as a page."""
