"""What a bare child interpreter runs to ask libraries that might kill it.

`python -I -S child.py` reads one JSON request per line; for each it writes a line when it begins
and a line with the answer, on its standard output, which the libraries themselves cannot reach.
Standard library only. A subject's module is loaded from its file, and may import modules of this
package that need no more.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from typing import Any


def main() -> None:
    """Answer every request, then leave without running anybody's destructors."""
    _lend_package()
    from backendcfg.childprocess import begin_answers

    answers = begin_answers()
    for number, line in enumerate(sys.stdin.read().splitlines()):
        write(answers, {"begin": number})
        write(answers, {"number": number, **answer(json.loads(line))})
    os._exit(0)


def _lend_package() -> None:
    """Let subjects import modules of this package, whose own start would apply a profile here."""
    package = type(sys)("backendcfg")
    package.__path__ = [os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]
    sys.modules["backendcfg"] = package


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """The facts, or the reason why there are none."""
    try:
        specification = importlib.util.spec_from_file_location("subject", request["module"])
        if specification is None or specification.loader is None:
            return {"error": f"{request['module']} is missing"}
        subject = importlib.util.module_from_spec(specification)
        specification.loader.exec_module(subject)
        return {"facts": subject.inspect(request)}
    except OSError as error:
        # The loader's text begins with the path, which is said beside it anyway.
        return {"error": str(error).removeprefix(f"{request.get('path', '')}: ")}
    except LookupError as error:
        return {"error": str(error.args[0])}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def write(descriptor: int, record: dict[str, Any]) -> None:
    """One line, at once."""
    os.write(descriptor, json.dumps(record).encode() + b"\n")


if __name__ == "__main__":
    main()
