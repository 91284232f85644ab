"""cuDNN's operation graphs: described, searched for an engine, and run."""
