"""Ranks that compute together: whether all of them compute alike.

`agree()` holds the settings of all ranks against each other, after `torch.distributed`, MPI or
`jax.distributed` have brought them together.
"""

from __future__ import annotations

from backendcfg.fleet.agreement import Agreement, Setting, agree
from backendcfg.fleet.drift import Change, Watch, watch

__all__ = ["Agreement", "Change", "Setting", "Watch", "agree", "watch"]
