"""Where TorchInductor keeps the code that it compiled: a folder for each way of compiling.

PyTorch finds compiled code again by the graph and by some of the settings that it was compiled
under, and other processes of the same user share it. Code for another number of threads or other
processors has been found to end a process. So what a profile asks for decides the folder, below the
one that PyTorch would take. A folder of the user's own, TORCHINDUCTOR_CACHE_DIR, is left as it is.
Triton's code lies in the same folder, unless TRITON_CACHE_DIR says otherwise.
"""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress

from backendcfg import environ
from backendcfg.bridges.torch.switches import TorchSwitch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Any

VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
OURS = "backendcfg-"
"""How the names of our folders begin."""
_NAME = OURS + "[0-9a-f]{12}"

FLAGS = (
    *("threads.", "determinism.algorithms", "determinism.fill_", "fp32_precision", "cuda."),
    *("cudnn.", "miopen.", "mkldnn.", "mha.", "nnpack.", "quantized.", "python_native."),
    *("opt_einsum.", "torch.", "onednn.", "blas.mkl.cbwr", "environment"),
)
"""How the flags begin that can change the code, or which code is looked for."""


class CodeFolder(TorchSwitch):
    """The variable, which PyTorch reads with each compilation and sets itself when it is unset."""

    name = "torch.inductor.cache_dir"
    only = "base"
    is_numeric = False
    """Where code lies decides no number, so its change is nobody's fault; PyTorch writes it too."""

    def read(self) -> str | None:
        return environ.foreign([VARIABLE]).get(VARIABLE)

    def write(self, value: str | None) -> None:
        environ.put(VARIABLE, value)


def folder(values: Mapping[str, Any], asked: Collection[str]) -> tuple[str, str] | None:
    """The folder that a profile needs, and the first flag that asks for it.

    None where no flag matters to the code, or the user chose a folder.
    """
    found = environ.foreign([VARIABLE]).get(VARIABLE)
    default = _default()
    if found and found != default and not os.path.basename(found).startswith(OURS):
        return None
    matter = {flag: values[flag] for flag in sorted(asked) if flag.startswith(FLAGS)}
    if not matter:
        return None
    import json
    from _sha1 import sha1  # type: ignore[import-not-found]

    digest = sha1(json.dumps(matter, sort_keys=True).encode()).hexdigest()[:12]
    return os.path.join(default, f"{OURS}{digest}"), next(iter(matter))


def folders() -> list[str]:
    """The folders of this user that `folder` has given PyTorch until now, sorted."""
    with suppress(OSError):
        default = _default()
        # Others can write to the directory of temporary files, and may have made it.
        if _is_folder_of_ours(default):
            names = sorted(name for name in os.listdir(default) if re.fullmatch(_NAME, name))
            return list(filter(_is_folder_of_ours, (os.path.join(default, one) for one in names)))
    return []


def _is_folder_of_ours(path: str) -> bool:
    """Whether a path is a folder of this user's, and no link."""
    found = os.lstat(path)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()


def _default() -> str:
    """The folder that PyTorch takes where nobody chose one."""
    import getpass
    import tempfile

    try:
        user = getpass.getuser()
    except (KeyError, ModuleNotFoundError, OSError):
        user = f"uid_{os.getuid()}"
    name = re.sub(r'[\\/:*?"<>|]', "_", user)
    return os.path.abspath(os.path.join(tempfile.gettempdir(), f"torchinductor_{name}"))
