"""What choices of flags are worth to a program: which there are here, runs in turns, verdicts."""
