"""Ranks that compute together: whether all of them compute alike.

`agree()` holds the settings of all ranks against each other, after `torch.distributed`, MPI or
`jax.distributed` have brought them together. `save()` keeps what a rank computes with in a folder,
and `merge()` puts together what all of them saved.
"""

from __future__ import annotations

from backendcfg.fleet.agreement import Agreement, Setting, agree
from backendcfg.fleet.drift import Change, Watch, watch
from backendcfg.fleet.report import Kind, Report, merge
from backendcfg.fleet.saving import save

__all__ = [
    "Agreement",
    "Change",
    "Kind",
    "Report",
    "Setting",
    "Watch",
    "agree",
    "merge",
    "save",
    "watch",
]
