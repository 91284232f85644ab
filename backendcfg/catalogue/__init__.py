"""Every library and framework that backendcfg deals with, one record each.

What detection, plans, providers and commands say of a library, they read here: `cpu` has the
libraries that compute on CPU arrays and the OpenMP runtimes, `gpu` those that compute on device
arrays, `frameworks` the Python packages. Plain data and standard library only: a starting process
reads it, and so does the bare interpreter in which `backendcfg.probe` asks libraries.
"""
