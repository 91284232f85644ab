"""Every bridge, in the order in which its knobs are written."""

from __future__ import annotations

import importlib

from backendcfg.errors import BackendCfgError, InternalError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Any

    from backendcfg.transact.knob import Setting

# The logger first, so that it tells of the rest. Then variables, because they act on whatever is
# loaded from then on; then the libraries; then the frameworks, whose own calls go through those
# libraries. Undoing goes the other way.
BRIDGES = ("log", "environment", "pools", "torch")


def settings(
    values: Mapping[str, Any],
    asked: Collection[str],
    name: str = "PROFILE",
    *,
    bridges: Collection[str] = BRIDGES,
) -> list[Setting]:
    """What a plan wants of every switch in this process, in the order of writing.

    Args:
        values: every flag with its value, as in `Compiled.values`.
        asked: the flags that somebody set; no switch is touched for any other.
        name: the profile, for the remedies of what cannot be set here.
        bridges: the bridges to ask.

    Raises:
        InternalError: a bridge failed; the message names it.
    """
    result: list[Setting] = []
    for bridge in bridges:
        try:
            module = importlib.import_module(f"backendcfg.bridges.{bridge}")
            result += module.settings(values, asked, name)
        except BackendCfgError:
            raise
        except Exception as error:
            raise InternalError(
                f"bridge `{bridge}` failed: {type(error).__name__}: {error}",
                helps=["report it, with the output of `backendcfg doctor`"],
            ) from error
    return result
