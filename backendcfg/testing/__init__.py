"""What tests use: a pytest plugin that runs them under a profile and finds what they leave."""
