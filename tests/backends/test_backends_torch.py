"""Our names over a real PyTorch: it obeys, is put back, and reads the precision tree as we do."""

from __future__ import annotations

import importlib.util
import json

import pytest

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch"),
]


def test_pytorch_obeys_every_assignable_switch_and_is_put_back(python):
    printed = python(
        """
        import json, torch
        from operator import attrgetter
        import backendcfg
        from backendcfg import backends as ours

        theirs = torch.backends
        switches = {
            "cudnn.enabled": False, "cudnn.benchmark": True, "cudnn.deterministic": True,
            "cudnn.depthwise_kernel": "native", "cudnn.conv.fp32_precision": "ieee",
            "cudnn.rnn.fp32_precision": "ieee", "miopen.immediate": True,
            "mkldnn.enabled": False, "mkldnn.deterministic": True,
            "mkldnn.matmul.fp32_precision": "ieee", "mkldnn.conv.fp32_precision": "bf16",
            "mkldnn.rnn.fp32_precision": "tf32", "opt_einsum.strategy": "greedy",
            "opt_einsum.enabled": False, "quantized.engine": "onednn",
        }
        # One value for both, because PyTorch's legacy switch cannot say two.
        together = {"cudnn.conv.fp32_precision", "cudnn.rnn.fp32_precision"}

        def read(package, name):
            return attrgetter(name)(package)

        def write(name, value):
            path, _, attr = name.rpartition(".")
            setattr(attrgetter(path)(ours), attr, value)

        start = {name: read(theirs, name) for name in switches}
        wrong = []
        for name, value in switches.items():
            if name in together:
                continue
            assert read(theirs, name) == read(ours, name), name
            write(name, value)
            if not read(theirs, name) == read(ours, name) == value:
                wrong.append((name, read(theirs, name), read(ours, name)))
        ours.cudnn.allow_tf32 = False
        for name in together:
            if not read(theirs, name) == read(ours, name) == "ieee":
                wrong.append((name, read(theirs, name)))
        assert theirs.cudnn.allow_tf32 is ours.cudnn.allow_tf32 is False
        backendcfg.undo()
        left = [n for n in switches if read(theirs, n) != start[n]]
        print(json.dumps([wrong, left]))
        """
    )
    assert json.loads(printed) == [[], []]


def test_a_scope_reaches_pytorch_and_gives_back_what_was_there(python):
    printed = python(
        """
        import torch
        from backendcfg import backends
        seen = []
        def look():
            seen.append((torch.backends.mkldnn.enabled, torch.backends.cudnn.deterministic))
        torch.backends.mkldnn.enabled = True
        with backends.mkldnn.flags(enabled=False):
            look()
            with backends.cudnn.flags(deterministic=True), backends.mkldnn.flags(enabled=True):
                look()
            look()
        look()
        @backends.mkldnn.flags(enabled=False)
        def decorated():
            look()
        decorated()
        print(seen)
        """
    )
    assert printed == (
        "[(False, False), (True, True), (False, False), (True, False), (False, False)]\n"
    )


def test_what_was_set_before_pytorch_is_imported_is_in_force_then(python):
    printed = python(
        """
        import sys
        from backendcfg import backends
        backends.mkldnn.enabled = False
        backends.opt_einsum.strategy = "optimal"
        assert "torch" not in sys.modules
        import torch
        print(torch.backends.mkldnn.enabled, torch.backends.opt_einsum.strategy)
        """
    )
    assert printed == "False optimal\n"


def test_languages_and_dispatch_keys_are_disabled_in_pytorch_and_enabled_again(python):
    printed = python(
        """
        import torch, backendcfg
        from backendcfg import backends
        theirs = torch.backends.python_native
        def look():
            keys = sorted(theirs._get_filter_state()._dispatch_keys)
            return keys, theirs.is_dsl_disabled("triton")
        with backends.python_native.triton.disabled():
            print(look())
        backends.python_native.disable_dispatch_keys("CUDA", "XPU")
        print(look())
        backends.python_native.enable_dispatch_keys("XPU")
        print(look())
        backendcfg.undo()
        print(look())
        """
    )
    assert printed.splitlines() == [
        "([], True)",
        "(['CUDA', 'XPU'], False)",
        "(['CUDA'], False)",
        "([], False)",
    ]


TREE = """
    import itertools, json, sys
    VALUES = {
        "fp32_precision": ("none", "ieee", "tf32", "bf16"),
        "cudnn.fp32_precision": ("none", "ieee", "tf32"),
        "mkldnn.fp32_precision": ("none", "ieee", "bf16"),
    }
    LEAVES = {
        "cuda.matmul.fp32_precision": "ieee",
        "cudnn.conv.fp32_precision": "none",
        "cudnn.rnn.fp32_precision": "tf32",
        "mkldnn.matmul.fp32_precision": "tf32",
        "mkldnn.conv.fp32_precision": "none",
        "mkldnn.rnn.fp32_precision": "bf16",
    }
    NAMES = [*VALUES, *LEAVES]
    def cases():
        for leaves in ({}, LEAVES):
            for values in itertools.product(*VALUES.values()):
                yield {**dict(zip(VALUES, values)), **leaves}
"""


def test_the_precision_tree_reads_as_in_pytorch(python):
    theirs = python(
        TREE
        + """
    import torch
    RAW = {"fp32_precision": ("generic", "all"), "cudnn.fp32_precision": ("cuda", "all"),
           "mkldnn.fp32_precision": ("mkldnn", "all")}
    def raw(name):
        if name in RAW:
            return RAW[name]
        backend, operation, _ = name.split(".")
        return ("mkldnn" if backend == "mkldnn" else "cuda"), operation
    read = []
    for case in cases():
        for name, value in case.items():
            torch._C._set_fp32_precision_setter(*raw(name), value)
        read.append([torch._C._get_fp32_precision_getter(*raw(name)) for name in NAMES])
    print(json.dumps(read))
    """
    )
    ours = python(
        TREE
        + """
    from backendcfg.backends.base import scoped
    from backendcfg.backends.base import effective
    read = []
    for case in cases():
        # A node at "none" is one that nobody set, which is how PyTorch's start.
        given = {n: v for n, v in case.items() if v != "none" or n.startswith("cudnn.")}
        given = {n: v for n, v in given.items() if (n, v) != ("cudnn.fp32_precision", "none")}
        with scoped(given):
            read.append([effective(name) for name in NAMES])
    print(json.dumps(read))
    """
    )
    theirs, ours = json.loads(theirs), json.loads(ours)
    assert len(ours) == 72
    assert [pair for pair in zip(theirs, ours, strict=True) if pair[0] != pair[1]] == []
