"""PyTorch's own functions with its routes and without, on the inputs that PyTorch's tests make.

A program for a process of its own. Writes JSON: for each function how many results and gradients were
compared, how many calls our kernels served, and what was wrong.
"""

import json
import sys

import torch
from torch.testing._internal.common_methods_invocations import op_db

import backendcfg
from backendcfg import ops

ROUTES = {"route.torch.attention": "native", "route.torch.matmul": "native"}
NAMES = {
    *("__rmatmul__", "addbmm", "addmm", "addmv", "baddbmm", "bmm", "einsum"),
    *("inner", "linalg.multi_dot", "matmul", "mm", "mv", "nn.functional.bilinear"),
    *("nn.functional.linear", "nn.functional.multi_head_attention_forward"),
    *("nn.functional.scaled_dot_product_attention", "tensordot"),
}
DTYPES = torch.float32, torch.bfloat16, torch.float16
ROUNDINGS = 2
"""A result may be twice as far from the exact one as PyTorch's, and so many roundings of the largest element
more."""


def flat(result):
    results = [result] if isinstance(result, torch.Tensor) else result
    return [one for one in results if isinstance(one, torch.Tensor)]


def called(info, sample):
    """What a function returns, and its gradients."""
    results = flat(info(sample.input, *sample.args, **sample.kwargs))
    given = [one for one in flat((sample.input, *sample.args)) if one.requires_grad]
    with_gradient = [one for one in results if one.requires_grad]
    if not given or not with_gradient:
        return [one.detach() for one in results]
    total = sum(one.float().square().sum() for one in with_gradient)
    gradients = torch.autograd.grad(total, given, allow_unused=True)
    return [one.detach() for one in (*results, *gradients) if one is not None]


def in_double(value):
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value
    return value.detach().double().requires_grad_(value.requires_grad)


def inputs():
    """Functions with the inputs of PyTorch's tests, none of which are wrong ones."""
    for info in op_db:
        if info.name not in NAMES:
            continue
        for dtype in [one for one in DTYPES if one in info.dtypes]:
            torch.manual_seed(0)
            for sample in info.sample_inputs("cpu", dtype, requires_grad=True):
                # Which weights are dropped is each library's own choice.
                if not sample.kwargs.get("dropout_p"):
                    yield info, sample
                    yield info, sample.noncontiguous()


def as_exact(before, after, exact):
    """Hold ours against PyTorch's, both by how far they are from the results of float64."""
    for theirs, ours, both in zip(before, after, exact, strict=True):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape), "another type or shape"
        finite = theirs.isfinite()
        assert torch.equal(ours.isfinite(), finite), "other numbers are infinite"
        if finite.any():
            apart = [(one.double() - both)[finite].abs().max().item() for one in (theirs, ours)]
            rounding = torch.finfo(theirs.dtype).eps * both[finite].abs().max().item()
            limit = 2 * apart[0] + ROUNDINGS * rounding
            assert apart[1] <= limit, f"{apart[1]:.1e} from the exact value, PyTorch {apart[0]:.1e}"


def main():
    given = list(inputs())
    before = [called(*one) for one in given]
    backendcfg.apply(settings=ROUTES)
    found = {info.name: {"compared": 0, "served": 0, "wrong": []} for info, _ in given}
    for (info, sample), theirs in zip(given, before, strict=True):
        report = found[info.name]
        try:
            with ops.trace() as calls:
                ours = called(info, sample)
            as_exact(theirs, ours, called(info, sample.transform(in_double)))
            report["served"] += len(calls)
            report["compared"] += 1
        except Exception as error:  # each is reported by its test
            text = f"{type(error).__name__}: {error}; {sample.summary()}"
            report["wrong"].append(text[:600])
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
