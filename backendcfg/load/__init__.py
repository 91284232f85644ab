"""From names, files and variables to a stack of layers: find, parse, locate, inherit."""
