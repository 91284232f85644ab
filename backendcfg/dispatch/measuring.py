"""One provider in a process of its own, which is asked for the times of its operations.

`python -m backendcfg.dispatch.measuring` is that process. It reads a compiled plan and the name of
a provider, answers with the file that serves, and then each line of a case with the seconds of one
call. What the library prints cannot reach the answers.
"""

from __future__ import annotations

import json
import os
import sys
import time
from functools import cache
from math import inf

from backendcfg import childprocess, environ
from backendcfg.catalogue.cpu import BY_NAME, NATIVE
from backendcfg.dispatch.calibration import THREADS
from backendcfg.dispatch.tuning import Case, ContenderLostError, cases
from backendcfg.native import FACTORISATIONS
from backendcfg.records import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from backendcfg.transact.compiled import Compiled

FUNCTIONS: dict[str, tuple[str, dict[str, bool]]] = {
    "getrf": ("lu_factor", {}),
    "potrf": ("cholesky", {}),
    "geqrf": ("qr", {}),
    "syevd": ("eigh", {}),
    "heevd": ("eigh", {}),
    "gesdd": ("svd", {"full_matrices": False}),
}
"""The function that is measured for each factorisation, and its options."""

DTYPES = {"s": "float32", "d": "float64", "c": "complex64", "z": "complex128"}


@record(frozen=True)
class Turn:
    """How long a turn warms up and measures, in seconds."""

    warm: float
    timed: float


PATIENCE = 30.0
"""Seconds after which a process that does not answer is given up."""

STRETCHES = 8

QUICK = Turn(0.001, 0.004)
# Threads that sleep are woken, and those of the process before this one have stopped spinning.
THREADED = Turn(0.025, 0.012)


class Process:
    """A contender: a provider in a child process.

    Attributes:
        name: of the provider.
        serial: whether it has no threads.
        path: the file that serves, "" for what is compiled in.
    """

    def __init__(
        self, name: str, compiled: Compiled, environment: Mapping[str, str], threads: int
    ) -> None:
        """Start the process and open the library in it.

        Raises:
            ContenderLostError: it cannot be opened.
        """
        self.name = name
        self.serial = BY_NAME[name].pool == ""
        self._threads = threads
        variables = {
            key: value
            for key, value in environment.items()
            if not key.startswith(environ.PREFIX) and key not in THREADS
        }
        variables |= dict.fromkeys(THREADS, str(threads))
        variables[environ.DISABLE.name] = "1"  # nothing but what is asked for acts in it
        self._child = childprocess.Dialogue(["-m", "backendcfg.dispatch.measuring"], variables)
        try:
            self.path = str(self._ask({"provider": name, "plan": compiled.to_json()})["path"])
        except BaseException:  # an interrupt too: the child would outlive us
            self.close()
            raise

    def take(self, case: Case) -> float | None:
        turn = THREADED if self._threads > 1 and case.is_parallel else QUICK
        sizes = [case.m, case.n, case.k]
        asked = {"operation": case.operation, "sizes": sizes, "turn": [turn.warm, turn.timed]}
        seconds = self._ask(asked)["seconds"]
        return None if seconds is None else float(seconds)

    def close(self) -> None:
        """End the process, whatever it does."""
        self._child.close()

    def _ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        self._child.tell(question)
        try:
            answer = self._child.hear(PATIENCE)
        except TimeoutError:
            raise ContenderLostError(f"its process did not answer within {PATIENCE:g} s") from None
        except EOFError:
            status = self._child.status() or 0
            how = f"signal {-status}" if status < 0 else f"status {status}"
            raise ContenderLostError(f"its process ended with {how}") from None
        if "error" in answer:
            raise ContenderLostError(answer["error"])
        return answer


def _serve(provider: str, compiled: Compiled) -> str:
    """Make a provider the one that serves here; the path of its file."""
    from backendcfg import _native, native
    from backendcfg.dispatch import snapshots

    _native.set_array_api()
    _native.bind(materialise=snapshots.materialise)
    listing = snapshots.list_providers([provider], compiled.libraries)
    if not listing.handles:
        raise ContenderLostError(listing.reasons[provider])
    native.set_default(native.intern({}, listing.handles))
    return native.describe(listing.handles[0]).path


@cache
def _numbers(dtype: str) -> tuple[Any, Any, Any]:
    """Memory for the operands and the result of every case of a type."""
    import numpy as np

    most = max(max(case.m * case.k, case.k * case.n, case.m * case.n) for case in cases())
    # What is multiplied does not matter, but for numbers that are no longer normal.
    numbers = np.linspace(0.5, 1.5, most).astype(dtype)
    return numbers, numbers[::-1].copy(), np.empty_like(numbers)


@cache
def _product(operation: str, m: int, n: int, k: int) -> Callable[[], object]:
    """A call of the product as a user makes it."""
    from backendcfg import _native

    shapes = ((m, k), (k, n), (m, n))
    a, b, c = (
        memory[: shape[0] * shape[1]].reshape(shape)
        for memory, shape in zip(_numbers(DTYPES[operation[0]]), shapes, strict=True)
    )
    return lambda: _native.matmul(a, b, c)


def _call(provider: str, operation: str, sizes: list[int]) -> Callable[[], object] | None:
    """A call of a case; None where the provider has no such operation."""
    if operation in FACTORISATIONS:
        return _factorisation(provider, operation, sizes[0])
    return _product(operation, *sizes)


@cache
def _factorisation(provider: str, operation: str, n: int) -> Callable[[], object] | None:
    """A call of linear algebra as a user makes it; None where the library has none."""
    import numpy as np

    from backendcfg import _native

    dtype = DTYPES[operation[0]]
    function, options = FUNCTIONS[operation[1:]]
    listed, *_ = _native.linalg_choice(function, list(DTYPES).index(operation[0]), n, n, 0)
    # What is compiled in is one code under two names.
    if provider == NATIVE.name or listed[0][2] != 0:
        return None
    _native.bind(linalg_refuse=_impossible, linalg_failed=_impossible)
    random = np.random.default_rng(0)
    real, imaginary = random.standard_normal((2, n, n))
    matrix = real + 1j * imaginary if operation[0] in "cz" else real
    if function in {"cholesky", "eigh"}:
        matrix = matrix @ matrix.conj().T / n + np.eye(n)
    matrix = matrix.astype(dtype)
    call = getattr(_native, f"linalg_{function}")
    return lambda: call(matrix, **options)


def _impossible(*arguments: object) -> None:
    """What linear algebra calls when it is refused or fails, which these matrices are not."""
    raise ContenderLostError(f"it failed: {arguments}")


def _seconds(call: Callable[[], object], turn: Turn) -> float:
    """Of one call: the best of several stretches that fill the turn, after those that warm up.

    A stretch that another program interrupted is longer; the best one was not.
    """
    clock = time.perf_counter
    calls, begin = 0, clock()
    while (elapsed := clock() - begin) < turn.warm or not calls:
        call()
        calls += 1
    once = max(elapsed / calls, 1e-9)
    repeat = range(max(1, int(turn.timed / STRETCHES / once)))
    best = inf
    for _ in range(max(1, min(STRETCHES, int(turn.timed / once)))):
        begin = clock()
        for _ in repeat:
            call()
        best = min(best, (clock() - begin) / len(repeat))
    return best


def main() -> None:
    """The child: open, then answer until nobody asks."""
    answers = childprocess.begin_answers()

    def answer(data: Mapping[str, Any]) -> None:
        os.write(answers, json.dumps(data).encode() + b"\n")

    from backendcfg.transact.compiled import Compiled as Plan

    asked = json.loads(sys.stdin.readline())
    provider = asked["provider"]
    try:
        path = _serve(provider, Plan.from_dict(json.loads(asked["plan"])))
    except ContenderLostError as error:
        answer({"error": str(error)})
        return
    except Exception as error:  # told by whoever asked, as the reason
        answer({"error": f"{type(error).__name__}: {error}"})
        return
    answer({"path": path})
    for line in sys.stdin:
        asked = json.loads(line)
        call = _call(provider, asked["operation"], asked["sizes"])
        answer({"seconds": _seconds(call, Turn(*asked["turn"])) if call else None})


if __name__ == "__main__":
    main()
