"""What is in force in this process, read back from the libraries themselves."""
