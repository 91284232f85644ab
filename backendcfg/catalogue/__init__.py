"""Every library, framework and variable of theirs that backendcfg deals with, one record each.

What detection, plans, providers and commands say of a library, they read here: `cpu` has the
libraries that compute on CPU arrays and the OpenMP runtimes, `gpu` those that compute on device
arrays, `frameworks` the Python packages, `variables` the environment variables by which a flag
reaches them, `xla_text` the words in XLA's. Plain data and standard library only: a starting
process reads it, and so does the bare interpreter in which `backendcfg.probe` asks libraries.
"""
