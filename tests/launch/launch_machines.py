"""Cores of machines that do not exist."""

from __future__ import annotations


def cores(first, count, threads=1, apart=0):
    """Cores with consecutive numbers; their other threads are `apart` processors further on."""
    return [
        tuple(first + core + thread * apart for thread in range(threads)) for core in range(count)
    ]
