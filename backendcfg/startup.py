"""Whether the interpreter that starts here is to have a profile, found without importing anything.

The wheel puts a copy of this file, `_backendcfg_startup.py`, into site-packages, and a `.pth` file
that makes `site` run it; `bridges/start/sitecustomize.py` runs it for `backendcfg run`. Inside the
package it says where state and settings are, and which file makes a folder a project.

Where nothing is in force it imports nothing. Else it waits until `site` has added every folder to
the path, which is when it looks for `sitecustomize`, and imports backendcfg, which applies what is
in force. Any Python 3 may meet it, so it uses nothing newer than 3.6.
"""

import os
import stat
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

OLDEST = (3, 11)
PACKAGE = "backendcfg"
PREFIX = "BACKENDCFG_"
# Of the variables of ours, those that put nothing in force; the others name a profile or a flag.
SILENT = (
    *("BACKENDCFG_CONFIG_DIR", "BACKENDCFG_SYSTEM_DIR", "BACKENDCFG_STATE_DIR"),
    *("BACKENDCFG_CACHE_DIR", "BACKENDCFG_STARTED_BY", "BACKENDCFG_STARTED_ANEW"),
    *("BACKENDCFG_CARRIED", "BACKENDCFG_GUARD", "BACKENDCFG_TRACE", "BACKENDCFG_RECORDS"),
    *("BACKENDCFG_WORKER", "BACKENDCFG_CORES", "BACKENDCFG_DISABLE"),
)
# And those that count also where this user does not trust the project's file.
STRONG = ("BACKENDCFG_PROFILE", "BACKENDCFG_INHERIT", "BACKENDCFG_CAPTURE")
# pip runs the last two by their paths while it builds a package.
INSTALLERS = ("ensurepip", "venv", "virtualenv", "__pip-runner__.py", "_in_process.py")
# Set while pip or another front end builds a package: compilers and build systems ask Python then.
BUILDING = ("PIP_BUILD_TRACKER", "_PYPROJECT_HOOKS_BUILD_BACKEND", "PEP517_BUILD_BACKEND")
# A notebook's kernel takes what its project's file picks, as `backendcfg run` does.
KERNELS = ("ipykernel_launcher", "ipykernel")

LARGEST = 1 << 20  # bytes that a file may have that is read here

NOWHERE = os.path.join(os.devnull, "backendcfg")  # below a file, where nothing can be
SHARED = "somebody else may write its folder"
MARKERS = ("backendcfg.toml", "pyproject.toml")
"""Files that can make a folder a project; the first always does."""

USER, ENVIRONMENT, TRUSTED = "*user*", "*environment*", "*trusted*"
"""What the index has instead of a project's path; TRUSTED stands before that of a trusted one."""

# Variables that backendcfg set (`environ.carried`); the process started anew, and its old values.
CARRIED, ANEW = "BACKENDCFG_CARRIED", "BACKENDCFG_STARTED_ANEW"

AT_START = "_backendcfg_at_start"
"""What `sys` has while backendcfg is imported at the start of an interpreter: `anew` below."""

OFF = "autoload-off"  # the file whose presence says that `backendcfg autoload off` was run


# Where things are. A function for each: what they depend on may change in a running process.
def below_home(ours: str, theirs: str, usual: str) -> str:
    """What a variable of ours names, else our folder below theirs; "" without a home directory."""
    chosen = os.environ.get(PREFIX + ours, "")  # noqa: TID251
    if chosen:
        return os.path.abspath(chosen)
    base = os.environ.get(theirs, "")  # noqa: TID251
    # As the XDG specification asks. An empty HOME would make `~` the root.
    if not os.path.isabs(base) and os.environ.get("HOME", usual):  # noqa: TID251
        base = os.path.expanduser(usual)
    return os.path.join(base, "backendcfg") if os.path.isabs(base) else ""


def state_directory() -> str:
    """Where the user's active profiles are kept; "" where there is no home directory."""
    base = below_home("STATE_DIR", "XDG_STATE_HOME", "~/.local/state")
    return base and os.path.join(base, "v2")


def environment_directory() -> str:
    """Where the active profile of this Python environment is kept."""
    return os.path.join(sys.prefix, "etc", "backendcfg")


def user_directory() -> str:
    """The user's configuration directory; NOWHERE where there is no home directory."""
    if sys.platform == "darwin":
        return below_home("CONFIG_DIR", "", "~/Library/Application Support") or NOWHERE
    return below_home("CONFIG_DIR", "XDG_CONFIG_HOME", "~/.config") or NOWHERE


def system_directory() -> str:
    """The system's configuration directory."""
    return os.path.abspath(os.environ.get(PREFIX + "SYSTEM_DIR") or "/etc/backendcfg")  # noqa: TID251


def working_directory() -> str:
    """The current directory; the root when it was removed under this process."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return "/"


def read(path: str, own: bool = False) -> "bytes | None":
    """What `take` has of a file, or None; it never raises."""
    try:
        return take(path, own=own)[0]
    except (OSError, ValueError):
        return None


def take(path: str, own: bool = False, largest: int = LARGEST) -> "tuple[bytes, os.stat_result]":
    """The content of a regular file, and what the system says of the file; it never waits.

    Args:
        path: the file.
        own: whether it and its folder must be as `_is_ours_alone` says.
        largest: how many bytes it may have.

    Raises:
        OSError: it cannot be read; `strerror` says why.
        ValueError: no file has such a name.
    """
    # Without O_NONBLOCK, opening a pipe would wait for its writer.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            is_folder = stat.S_ISDIR(found.st_mode)
            raise OSError(0, "it is a directory" if is_folder else "it is not a plain file")
        if own and not _is_ours_alone(found):
            raise OSError(0, "somebody else may write it")
        if own and is_shared(os.path.dirname(path)):
            raise OSError(0, SHARED)
        content, size = b"", found.st_size
        # The file may grow meanwhile: one byte more than allowed is enough to know.
        while size <= largest:
            part = os.read(handle, largest + 1 - len(content))
            if not part:
                return content, found
            content += part
            size = max(size, len(content))
        # No f-string: an older Python must get as far as to say that it is too old.
        raise OSError(0, "it has {:,} bytes, and may have {:,}".format(size, largest))  # noqa: UP032
    finally:
        os.close(handle)


def _is_ours(owner: "int") -> bool:
    if owner in (os.geteuid(), 0):
        return True
    try:
        return owner == os.stat(sys.prefix).st_uid
    except OSError:
        return False


def is_shared(path: str) -> bool:
    """Whether a file or folder is there, and somebody else may write it."""
    try:
        return not _is_ours_alone(os.stat(path or "."))
    except OSError:
        return False


def _is_ours_alone(found: "os.stat_result") -> bool:
    """Whether a file or a folder is ours, and nobody else may write it, but for a private group.

    A sticky folder like /tmp counts: everybody may write there, and nobody else replace our files.
    """
    if not _is_ours(found.st_uid):
        return False
    if found.st_mode & stat.S_IWOTH:
        return stat.S_ISDIR(found.st_mode) and bool(found.st_mode & stat.S_ISVTX)
    # The group of an arbitrary user of a container is root's.
    if not found.st_mode & stat.S_IWGRP or found.st_gid == 0:
        return True
    import grp
    import pwd

    # Systems with a group for each user give it the user's name, and sometimes another number.
    try:
        return grp.getgrgid(found.st_gid).gr_name == pwd.getpwuid(found.st_uid).pw_name
    except KeyError:
        return found.st_gid == found.st_uid


def folders(here: str) -> "Iterator[str]":
    """A folder and those above it."""
    at, last = here, ""
    while at != last:
        yield at
        at, last = os.path.dirname(at), at


def upwards(here: str) -> "Iterator[str]":
    """A folder and those above it, as far as they belong to this user or to root."""
    user = os.geteuid()
    for at in folders(here):
        try:
            if os.stat(at).st_uid not in (user, 0):
                return
        except OSError:
            return
        yield at


def marker(folder: str, anybody: bool = False) -> str:
    """The file that makes a folder a project, or ""; of `anybody`, or only one that counts."""
    for name in MARKERS:
        path = os.path.join(folder, name)
        try:
            user, owner, inside = os.geteuid(), os.lstat(path).st_uid, os.stat(folder)
            # Where others may write, somebody else's file is not the project's. Who lets a group
            # write in a folder of his own shares it with the group.
            others = stat.S_IWOTH if inside.st_uid == user != 0 else stat.S_IWOTH | stat.S_IWGRP
            if not anybody and owner not in (user, 0) and inside.st_mode & others:
                continue
        except (OSError, ValueError):
            continue
        if name == MARKERS[0] or has_table(read(path) or b""):
            return path
    return ""


def has_table(content: "bytes") -> bool:
    """Whether a pyproject.toml has [tool.backendcfg], in any spelling; no TOML is parsed."""
    if b"backendcfg" not in content:
        return False
    table: list[str] = []
    lines = [one for one in content.split(b"\n") if b"[" in one or b"backendcfg" in one]
    for line in b"\n".join(lines).decode("utf-8", "replace").split("\n"):
        key = line.split("=")[0].strip() if not line.lstrip().startswith("[") else line.strip()
        names = [name.strip(" \t\"'[]") for name in key.split("]")[0].split(".")]
        if key.startswith("["):
            table, names = names, []
        if (table + names)[:2] == ["tool", "backendcfg"]:
            return True
        if names == ["tool"] and "backendcfg" in line:
            return True
    return False


def project(here: str) -> "tuple[str, str]":
    """The folder of the project that a folder belongs to, and the file that makes it one."""
    found = ((folder, marker(folder)) for folder in upwards(here))
    return next((pair for pair in found if pair[1]), ("", ""))


def project_of_another(here: str) -> "tuple[str, str]":
    """The nearest project's file, if none there counts; and the path that is another user's."""
    mine, other = set(upwards(here)), ""
    for at in folders(here):
        other = other or ("" if at in mine else at)
        path = marker(at, anybody=True)
        if path:
            return (path, other or path) if other or not marker(at) else ("", "")
    return "", ""


def picks(path: str) -> bool:
    """Whether a settings file may pick a profile, or has a key that is meant to."""
    try:
        return b"prof" in take(path)[0]
    except (OSError, ValueError) as error:
        denied = isinstance(error, PermissionError)  # then backendcfg is imported, and says so
        return denied and (os.path.lexists(path) or is_within(path, system_directory()))


def escaped(path: str) -> str:
    """A path without the characters that separate fields and lines of the index."""
    return path.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")


def active_rows(folder: str) -> "dict[str, int] | None":
    """The active generation by escaped path, 0 for none, by the index; None for a damaged one."""
    content = read(os.path.join(folder, "active"), own=True) if folder else None
    if content is None:
        return {}
    lines = os.fsdecode(content).split("\n")
    if not lines[0].startswith("backendcfg 1 ") or lines[-1]:
        return None
    rows: dict[str, int] = {}
    for line in lines[1:-1]:
        row = line.split("\t")
        if len(row) != 5 or not 0 < len(row[0]) < 10 or row[0].strip("0123456789"):
            return None
        rows[row[2]] = int(row[0])
    return rows


def refused(words: "list[str]") -> "list[str]":
    """The indexes that would count and do not, as somebody else may write them or their folder."""
    if is_worker(words) or any(os.environ.get(name) for name in STRONG):  # noqa: TID251
        return []
    states = [state for state in (state_directory(), environment_directory()) if state]
    paths = [os.path.join(state, "active") for state in states]
    shared = [path for path in paths if is_shared(path) or is_shared(os.path.dirname(path))]
    return [path for path in shared if os.path.lexists(path)]


def is_within(path: str, root: str) -> bool:
    """Whether a folder is the project's, or below it; any folder is where there is no project."""
    return not root or (path + "/").startswith(root.rstrip("/") + "/")


def may_have_profile(committed: bool) -> "tuple[bool, str]":
    """Whether a process that starts here may have a profile; and a file that prevents it, or "".

    Args:
        committed: whether a project's file counts that this user does not trust.
    """
    if any(os.environ.get(name) for name in STRONG):  # noqa: TID251
        return True, ""
    mine, shared = active_rows(state_directory()), active_rows(environment_directory())
    if mine is None or shared is None:
        return True, ""  # backendcfg says what is wrong
    here = working_directory()
    nearest = next((at for at in folders(here) if mine.get(escaped(at))), "") if mine else ""
    # The variables of flags, and misspelled ones.
    names = [n for n in os.environ if n.startswith(PREFIX) and n not in SILENT]  # noqa: TID251
    others = bool(
        any(os.environ.get(name) for name in names)  # noqa: TID251
        or nearest
        or mine.get(USER)
        or shared.get(ENVIRONMENT)
        or picks(os.path.join(user_directory(), "config.toml"))
        or picks(os.path.join(system_directory(), "config.toml"))
    )
    if not (others or mine or committed):
        return False, ""  # whatever a project's file says, which is not even read
    root, file = project(here)
    if not file or (nearest and is_within(nearest, root)):
        return others, ""
    if committed or TRUSTED + escaped(root) in mine:
        return others or picks(file), ""
    return False, file if others else ""


def is_turned_off() -> bool:
    """Whether BACKENDCFG_DISABLE turns everything off."""
    text = os.environ.get(PREFIX + "DISABLE", "")  # noqa: TID251
    return text.strip().lower() not in ("", "0", "false", "no", "off")


def disabled() -> bool:
    """Whether everything is turned off, or a package is being built."""
    return is_turned_off() or any(name in os.environ for name in BUILDING)  # noqa: TID251


def off_files() -> "tuple[str, ...]":
    """The files that turn the start-up file off: this environment's, and this user's."""
    places = environment_directory(), os.path.dirname(state_directory())
    return tuple(os.path.join(place, OFF) for place in places if place)


def is_off() -> bool:
    """Whether `backendcfg autoload off` was run."""
    return any(os.path.lexists(path) for path in off_files())


def program(words: "list[str]") -> "tuple[str, str]":
    """What a command line runs: ("-c", its text), ("-m", a module) or ("", a file's name)."""
    rest = iter(words[1:])
    for word in rest:
        if word in ("-W", "-X", "--check-hash-based-pycs"):
            next(rest, "")
        elif word.startswith(("-c", "-m")):
            return word[:2], word[2:] or next(rest, "")
        elif not word.startswith("-"):
            return "", os.path.basename(word)
    return "", ""


def is_command_line(words: "list[str]") -> bool:
    """Whether a command line runs the `backendcfg` command."""
    return program(words) in (("-m", "backendcfg"), ("", "backendcfg"), ("", "backendcfg.exe"))


def is_spared(words: "list[str]") -> bool:
    """Whether the interpreter runs an installer, or backendcfg's own command line."""
    kind, name = program(words)
    if kind == "-c":
        return "pip-setuptools-caller" in name  # what pip wraps around a setup.py
    if kind == "-m":
        name = name.split(".")[0]
    versioned_pip = name.startswith("pip") and not name[3:].strip("0123456789.")
    return versioned_pip or name == "backendcfg" or name in INSTALLERS


def is_worker(words: "list[str]") -> bool:
    """Whether a command line runs a worker of a pool, or what serves the workers."""
    kind, name = program(words)
    if kind == "-c" and not name.startswith("from "):
        return False
    name = name.split(" import ")[0]
    return "--multiprocessing-fork" in words or "multiprocessing" in name or "loky" in name


def start(required: bool = False) -> None:
    """Let backendcfg apply what is in force.

    A failure is one line on standard error; where a profile is `required`, it ends the process.
    """
    if sys.version_info < OLDEST:
        say("warning: backendcfg does not act in " + sys.executable + ": it needs Python 3.11")
        return
    started_anew = _is_anew()
    try:
        if not (required or started_anew):
            setattr(sys, AT_START, anew)
        __import__(PACKAGE)
    except KeyboardInterrupt:
        import signal

        # `site` would call it a fatal error of the interpreter; a program ends by its signal.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except Exception as error:
        if getattr(error, "name", "") == "backendcfg":
            if required:  # else it was uninstalled
                say("warning: backendcfg does not act in " + sys.executable + ": " + str(error))
        elif required or os.environ.get(PREFIX + "PROFILE"):  # noqa: TID251
            _stop(error)
        else:
            warn(error)
    finally:
        if hasattr(sys, AT_START):
            delattr(sys, AT_START)


def warn(error: "Exception") -> None:
    """Say in one line on standard error that what is active does not act in this process."""
    if hasattr(sys, _WARNED):
        return
    setattr(sys, _WARNED, True)
    near = [h for h in getattr(error, "helps", ()) if h.startswith("did you mean")]
    what = str(error).split("\n")[0] or type(error).__name__
    what += " (" + near[0] + ")" if near else ""
    say(
        "warning: what is active was not applied to this process: " + what + "; `backendcfg status`"
        " says more, BACKENDCFG_DISABLE=1 starts without it"
    )


def anew(wanted: "dict[str, str | None]", profile: str) -> None:
    """Start the same command line anew, with the variables that a profile wants before the start.

    None unsets one. Where that is not safe it says so, and returns.
    """
    why = _in_the_way()
    if not why:
        environment = dict(os.environ)  # noqa: TID251
        before = [n + ("=" + environment[n] if n in environment else "") for n in wanted]
        for name, text in wanted.items():
            environment.pop(name, None)
            if text is not None:
                environment[name] = text
        environment[ANEW] = "\x1f".join([str(os.getpid()), *before])
        try:
            os.execve(sys.executable, sys.orig_argv, environment)  # noqa: S606 - no shell
        except OSError as error:
            why = "it cannot be started anew: " + str(error)
    theirs = is_worker(sys.orig_argv) and all(name in os.environ for name in wanted)  # noqa: TID251
    cure = "what started it has set another" if theirs else "`backendcfg run -- COMMAND` sets it"
    what = ", ".join(wanted) + " of profile `" + profile + "` must be set before Python starts"
    say("note: " + what + ", and " + why + "; " + cure)


def _is_anew() -> bool:
    """Whether this process was started anew.

    What was set for it stays, so that workers find it, but for what the loader obeys in any program
    that this one starts.
    """
    here = os.environ  # noqa: TID251
    process, *before = here.pop(ANEW, "").split("\x1f")
    if process != str(os.getpid()):
        return False
    for entry in before:
        name, was_set, text = entry.partition("=")
        if name.startswith(("LD_", "GLIBC_")):
            here.pop(name, None)
            if was_set:
                here[name] = text
        elif not was_set and name in here:
            # Not the user's wish (`environ.wishes`), so that the stored plan still holds.
            here[CARRIED] = here.get(CARRIED, "") + " " + name + "=" + here[name]
    return True


def _in_the_way() -> str:
    """Why this interpreter cannot be started anew, or ""."""
    words = getattr(sys, "orig_argv", [])
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            status = dict(line.split(":", 1) for line in file if ":" in line)
        if not (words and sys.executable and os.path.samefile("/proc/self/exe", sys.executable)):
            return "this Python is part of another program"
    except (OSError, ValueError):
        return "this system does not tell whether this Python can be started anew"
    if (os.getuid(), os.getgid()) != (os.geteuid(), os.getegid()):
        return "this Python runs with the rights of another user"
    if status.get("Threads", "").strip() != "1":
        return "this Python has started threads"
    monitoring = getattr(sys, "monitoring", None)
    watched = monitoring and any(monitoring.get_tool(number) for number in range(6))
    if sys.gettrace() or sys.getprofile() or watched or status.get("TracerPid", "").strip() != "0":
        return "a debugger or a profiler watches this Python"
    if is_worker(words):
        return "this Python is a worker of another"
    if not may_have_profile(committed=False)[0]:
        return "you do not trust the settings file of this project"
    return ""


def _stop(error: "Exception") -> None:
    """End the process, unless it is an installer: `site` would swallow an exception."""
    if hasattr(error, "render") and hasattr(error, "exit_code"):
        say(error.render())
        status = error.exit_code
    else:
        import traceback

        say("".join(traceback.format_exc()) + "error[internal]: backendcfg failed")
        status = 70
    if is_spared(getattr(sys, "orig_argv", sys.argv)):
        return
    for stream in filter(None, (sys.stdout, sys.stderr)):
        stream.flush()
    os._exit(status)


def say(text: str) -> None:
    """Write a line to standard error, if that takes one."""
    # A folder's name may have characters that command a terminal.
    shown = "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)
    try:  # noqa: SIM105 - contextlib is not imported yet
        sys.stderr.write(shown.rstrip("\n") + "\n")
    except (AttributeError, OSError, ValueError):
        pass  # there is none, or it is full or closed


_WARNED = "_backendcfg_warned"  # what `sys` has after a start warned: one line is enough


def _when_path_is_complete(action: "Callable[[], None]") -> None:
    """Do something when `site` looks for `sitecustomize`, which is the last thing that it does.

    Once, although `site` runs the `.pth` files of a virtual environment twice.
    """
    from _frozen_importlib import ModuleSpec

    class Finder:
        """Finds and runs a module that stands before every other `sitecustomize`."""

        def find_spec(self, name: str, *_: object, **__: object) -> "ModuleSpec | None":
            # Nothing starts here: importlib holds a lock of all imports while finders look, and a
            # start waits for threads that import. While a module runs, that lock is free.
            loader: Any = self
            return ModuleSpec(name, loader) if name == "sitecustomize" else None

        def create_module(self, spec: object) -> None:
            """None: Python makes it."""

        def exec_module(self, module: object) -> None:
            # Also those of other folders: the user's and the environment's. A new list, because
            # another thread that imports may be going through this one.
            sys.meta_path = [f for f in sys.meta_path if type(f).__module__ != __name__]
            action()
            # The module that `site` looks for takes this one's place, if there is one.
            sys.modules.pop("sitecustomize", None)
            __import__("sitecustomize")

    sys.meta_path.insert(0, Finder())


def begin() -> None:
    """Start, now or when the path is complete, unless there is nothing to start."""
    if sys.flags.ignore_environment or "backendcfg" in sys.modules:
        return
    words = getattr(sys, "orig_argv", sys.argv)
    kind, name = program(words)
    active, untrusted = may_have_profile(committed=kind == "-m" and name in KERNELS)
    notes = [path + " does not count: somebody else may write it" for path in refused(words)]
    if untrusted:
        notes.append("this Python starts without a profile, because you do not trust " + untrusted)
    if not (active or notes) or is_spared(words) or disabled() or is_off():
        return

    def action() -> None:
        if ANEW not in os.environ:  # noqa: TID251 - before it was started anew, it said so
            for note in notes:
                say("note: " + escaped(note) + "; see `backendcfg status`")
        if active:
            start()

    if "sitecustomize" in sys.modules:
        action()
    else:
        _when_path_is_complete(action)
