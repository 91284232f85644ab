"""PyTorch's own functions with its routes and without, on the inputs that PyTorch's tests make.

    python torch_routed.py MATMUL SHUFFLED

MATMUL is the route of products, and the inputs come SHUFFLED times again with their numbers in another
order. Writes JSON: for each function how many calls were compared, how many our kernels served, what was
wrong, and by type how far results are from the exact ones, in units of PyTorch's: the geometric mean for
the result, and for each gradient.
"""

import json
import math
import sys
from collections import defaultdict

import torch
from torch.testing._internal.common_methods_invocations import op_db

import backendcfg
from backendcfg import ops
from backendcfg.ops.attention import torch_kernels

torch_kernels.FEW = 0  # small calls with dropout, too

ROUTES = {"route.torch.attention": "native", "route.torch.dropout": "native"}
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
AVERAGED = {"nn.functional.scaled_dot_product_attention"}
MOST = 8
"""One result of these may be so many times as far, each beside a rounding: a large score makes one rounding of
many, and which of the two is luckier in one of a few numbers says little. Their averages are told."""


def flat(result):
    results = [result] if isinstance(result, torch.Tensor) else result
    return [one for one in results if isinstance(one, torch.Tensor)]


def called(info, sample):
    """What a function returns, and its gradients."""
    torch.manual_seed(0)  # which weights dropout drops
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


def shuffled(value):
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value
    numbers = value.detach().flatten()
    numbers = numbers[torch.randperm(numbers.numel())].view(value.shape)
    return numbers.requires_grad_(value.requires_grad)


def inputs(times):
    """Functions with the inputs of PyTorch's tests, none of which are wrong ones."""
    for info in op_db:
        if info.name not in NAMES:
            continue
        for dtype in [one for one in DTYPES if one in info.dtypes]:
            torch.manual_seed(0)
            for sample in info.sample_inputs("cpu", dtype, requires_grad=True):
                yield info, sample
                yield info, sample.noncontiguous()
                # Only attention has dropout, and many calls without it are compared.
                for _ in range(times // 5 if sample.kwargs.get("dropout_p") else times):
                    yield info, sample.transform(shuffled)


def errors(name, before, after, exact):
    """How far ours is from the result of float64, in units of how far PyTorch's is: for each result."""
    for theirs, ours, both in zip(before, after, exact, strict=True):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape), "another type or shape"
        finite = theirs.isfinite()
        assert torch.equal(ours.isfinite(), finite), "other numbers are infinite"
        if finite.any() and not torch.equal(theirs, ours):
            apart = [(one.double() - both)[finite].abs().max().item() for one in (theirs, ours)]
            kind = torch.finfo(theirs.dtype)
            rounding = kind.eps * max(both[finite].abs().max().item(), kind.tiny)
            ratio = (apart[1] + rounding) / (apart[0] + rounding)
            told = f"{apart[1]:.1e} from the exact value, PyTorch {apart[0]:.1e}"
            if name in AVERAGED:
                assert ratio <= MOST, told
            else:
                assert apart[1] <= 2 * apart[0] + ROUNDINGS * rounding, told
            yield ratio
        else:
            yield None


def main(matmul, times):
    given = list(inputs(int(times)))
    before = [called(*one) for one in given]
    backendcfg.apply(settings={**ROUTES, "route.torch.matmul": matmul})
    found = {info.name: {"compared": 0, "served": 0, "wrong": []} for info, _ in given}
    ratios = {name: defaultdict(list) for name in found}
    for (info, sample), theirs in zip(given, before, strict=True):
        report = found[info.name]
        try:
            with ops.trace() as calls:
                ours = called(info, sample)
            exact = called(info, sample.transform(in_double))
            for at, ratio in enumerate(errors(info.name, theirs, ours, exact)):
                if ratio is not None:
                    ratios[info.name][f"{theirs[at].dtype}, {at}"].append(math.log(ratio))
            report["served"] += len(calls)
            report["compared"] += 1
        except Exception as error:  # each is reported by its test
            text = f"{type(error).__name__}: {error}; {sample.summary()}"
            report["wrong"].append(text[:600])
    for name, report in found.items():
        report["error"] = {
            kind: [len(logs), math.exp(math.fsum(logs) / len(logs))]
            for kind, logs in ratios[name].items()
        }
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
