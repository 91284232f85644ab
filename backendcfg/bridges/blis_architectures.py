"""The number that selects a BLIS kernel set, found by asking the BLIS file itself.

BLIS_ARCH_TYPE takes a number in most versions, the numbers differ between versions, a name is
read as 0, and a number that the file was built without aborts the process. So every candidate is
tried in a child process, and only what that child confirms is handed out.
"""

from __future__ import annotations

from functools import cache

from backendcfg import environ
from backendcfg.errors import MissingLibraryError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from backendcfg.childprocess import Ended

VARIABLE = "BLIS_ARCH_TYPE"
SECONDS = 20
MOST = 128

_LIST = f"""
import ctypes, os, sys
library = ctypes.CDLL(sys.argv[1], mode=os.RTLD_LOCAL)
name = library.bli_arch_string
name.argtypes, name.restype = [ctypes.c_int], ctypes.c_char_p
for number in range({MOST}):
    text = name(number) or b""
    print(number, text.decode(), flush=True)
    if text == b"generic":
        break
"""
_CONFIRM = """
import ctypes, os, sys
library = ctypes.CDLL(sys.argv[1], mode=os.RTLD_LOCAL)
library.bli_init()
query = library.bli_arch_query_id
query.argtypes, query.restype = [], ctypes.c_int
print(query())
"""


def numbers(path: str) -> dict[str, int]:
    """Every kernel set that the file has a name for; it may be built without some.

    Raises:
        MissingLibraryError: the file cannot be asked.
    """
    done = _child(_LIST, path)
    pairs = (line.split(maxsplit=1) for line in done.text.splitlines())
    found = {pair[1]: int(pair[0]) for pair in pairs if len(pair) == 2}
    # The table ends with "generic"; a child that died before it read beyond what it has.
    if "generic" not in found:
        raise MissingLibraryError(
            f"cannot ask {path} for its kernel sets",
            notes=[_last_line(done)],
            helps=['set `blas.blis.arch_type = "auto"`'],
        )
    return found


def number(name: str, paths: Iterable[str]) -> str:
    """The text for BLIS_ARCH_TYPE that selects `name` in every given file.

    Raises:
        MissingLibraryError: a file lacks it, cannot be asked, or numbers it differently.
    """
    answers = {path: _confirmed(name, path) for path in paths}
    if len(set(answers.values())) > 1:
        raise MissingLibraryError(
            f"the BLIS files here number `{name}` differently, and one variable serves them all",
            notes=[f"{path}: {answer}" for path, answer in answers.items()],
            helps=["remove all but one of them", 'set `blas.blis.arch_type = "auto"`'],
        )
    return next(iter(answers.values()))


@cache
def survives(path: str, text: str) -> bool:
    """Whether the file starts at all with this text in BLIS_ARCH_TYPE."""
    return _child(_CONFIRM, path, text).status == 0


def _confirmed(name: str, path: str) -> str:
    known = numbers(path)
    if name in known:
        text = str(known[name])
        done = _child(_CONFIRM, path, text)
        if done.status == 0 and done.text.strip() == text:
            return text
        reason = _last_line(done)
    else:
        reason = "it does not know the name"
    built = sorted(each for each, number in known.items() if survives(path, str(number)))
    more = f" and {len(built) - 8} more" if len(built) > 8 else ""
    raise MissingLibraryError(
        f"BLIS at {path} has no kernel set `{name}`",
        notes=[reason, f"it is built with: {', '.join(built[:8])}{more}"],
        helps=["name one that it is built with", 'set `blas.blis.arch_type = "auto"`'],
    )


def _child(program: str, path: str, told: str = "") -> Ended:
    from backendcfg import childprocess

    clean = {
        key: text
        for key, text in environ.copy().items()
        if not key.startswith(("BLIS_", environ.PREFIX, "LD_PRELOAD"))
    }
    environment = {**clean, VARIABLE: told} if told else clean
    return childprocess.run(["-c", program, path], environment, seconds=SECONDS, isolated=True)


def _last_line(done: Ended) -> str:
    lines = [line for line in done.complaints.splitlines() if line.strip()]
    ended = f"a child process that tried it {done.how}"
    said = next((line for line in lines if "BLIS_ARCH_TYPE" in line), lines[-1] if lines else "")
    return f"{ended}: {said}" if said else ended
