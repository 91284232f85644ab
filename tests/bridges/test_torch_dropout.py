"""What PyTorch's dropout draws, by our kernel: `route.torch.dropout`."""

from __future__ import annotations

import pytest

BEGINS = """
import json, threading, torch
from types import ModuleType
import backendcfg
from backendcfg.ops import torch_dropout

NATIVE = {"route.torch.dropout": "native"}
SMALL = torch_dropout.SMALL
drawn = []
own = torch_dropout._drawn
def counted(*given):
    drawn.append(own(*given))
    return drawn[-1]
torch_dropout._drawn = counted

def after(seed, call):
    '''What a call gives after the generator was set, and what is drawn next.'''
    torch.manual_seed(seed)
    return call(), torch.rand(5)

def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
"""


@pytest.mark.torch
def test_the_numbers_and_what_is_drawn_next_are_pytorch_s(program):
    code = f"""{BEGINS}
def cases():
    for dtype in ("float32", "float64", "bfloat16", "float16", "bool", "uint8", "int32", "int64"):
        for size in (SMALL, SMALL + 1, 3 * SMALL + 311):
            empty = torch.empty(size, dtype=getattr(torch, dtype))
            yield f"{{dtype}} {{size}}", lambda empty=empty: empty.bernoulli_(0.3).clone()
    numbers = torch.randn(9, 33, 65)
    # Wherever in its state the generator is, and whatever the probability.
    for words in (1, 2, 311, 622, 623, 624, 625, 1248):
        def begun(words=words):
            torch.empty(words, dtype=torch.int32).random_()
            return torch.empty(SMALL).bernoulli_(0.3)
        yield f"after {{words}} words", begun
    for p in (1e-300, 2.0 ** -53, 0.1, 0.5, 1 - 2.0 ** -53):
        yield f"p = {{p}}", lambda p=p: torch.empty(SMALL).bernoulli_(p)
    yield "dropout", lambda: torch.nn.functional.dropout(numbers, 0.1)
    yield "dropout in place", lambda: torch.nn.functional.dropout(numbers.clone(), 0.1, inplace=True)
    yield "a layer", lambda: torch.nn.Dropout(0.4)(numbers)
    yield "bernoulli", lambda: torch.bernoulli(numbers, 0.2)
    yield "a generator", lambda: numbers.clone().bernoulli_(generator=torch.Generator().manual_seed(3))
    def gradient():
        x = numbers.clone().requires_grad_()
        torch.nn.functional.dropout(x, 0.1).sum().backward()
        return x.grad
    yield "a gradient", gradient

theirs = {{name: after(7, call) for name, call in cases()}}
assert not drawn
backendcfg.apply(settings=NATIVE)
drawn.clear()
other = []
for name, call in cases():
    drawn.clear()
    if not same(after(7, call), theirs[name]) or len(drawn) != 1 or drawn[0] is None:
        other.append(name)
print(json.dumps([len(theirs), other]))
"""
    assert program(code) == [43, []]


@pytest.mark.torch
def test_what_our_kernel_cannot_draw_stays_pytorch_s_errors_included(program):
    code = f"""{BEGINS}
large = torch.empty(3, SMALL)
def fails(call):
    try:
        call()
    except RuntimeError as error:
        return torch.tensor([ord(letter) for letter in str(error).splitlines()[0]])
calls = {{
    "few": lambda: torch.empty(SMALL - 1).bernoulli_(0.5),
    "columns": lambda: torch.empty(SMALL, 2).mT.bernoulli_(0.5),
    "never": lambda: large.clone().bernoulli_(0),
    "always": lambda: large.clone().bernoulli_(1),
    "too probable": lambda: fails(lambda: large.clone().bernoulli_(1.5)),
    "between two words": lambda: torch.frombuffer(
        bytearray(4 * SMALL + 1), dtype=torch.float32, count=SMALL, offset=1
    ).bernoulli_(0.5),
    "no probability": lambda: fails(lambda: large.clone().bernoulli_(float("nan"))),
    "complex": lambda: fails(lambda: large.to(torch.complex64).bernoulli_(0.5)),
    "no type": lambda: fails(lambda: large.to(torch.float8_e4m3fn).bernoulli_(0.5)),
    "a probability for each": lambda: torch.bernoulli(torch.full((SMALL,), 0.3)),
}}
theirs = {{name: after(1, call) for name, call in calls.items()}}
backendcfg.apply(settings=NATIVE)
drawn.clear()
print(json.dumps([[name for name in calls if not same(after(1, calls[name]), theirs[name])], drawn]))
"""
    assert program(code) == [[], []]


@pytest.mark.torch
def test_where_another_thread_draws_meanwhile_no_number_is_given_twice(program):
    """The other one draws after our kernel took the state, and before it is put back."""
    code = f"""{BEGINS}
torch.manual_seed(2)
wanted = torch.rand(3), torch.empty(SMALL).bernoulli_(0.5), torch.rand(3)
backendcfg.apply(settings=NATIVE)
taken = []
def meanwhile(*given):
    found = own(*given)
    other = threading.Thread(target=lambda: taken.append(torch.rand(3)))
    other.start()
    other.join()
    return found
torch_dropout._drawn = meanwhile
torch.manual_seed(2)
found = torch.empty(SMALL).bernoulli_(0.5)
print(json.dumps(same((*taken, found, torch.rand(3)), wanted)))
"""
    assert program(code) is True


@pytest.mark.torch
def test_threads_that_draw_at_once_never_get_the_same_numbers(program):
    """Where Python lets another thread in as often as it can."""
    code = f"""{BEGINS}
import sys
backendcfg.apply(settings=NATIVE)
sys.setswitchinterval(1e-6)
masks, numbers = [], []
def drops():
    for _ in range(1500):
        masks.append(torch.empty(SMALL).bernoulli_(0.5).numpy().tobytes())
def draws():
    while any(thread.is_alive() for thread in dropping):
        numbers.append(tuple(torch.randint(1 << 20, (4,)).tolist()))
dropping = [threading.Thread(target=drops) for _ in range(2)]
drawing = [threading.Thread(target=draws) for _ in range(2)]
for thread in (*dropping, *drawing):
    thread.start()
for thread in (*dropping, *drawing):
    thread.join()
print(json.dumps([len(masks), len(set(masks)), len(numbers) - len(set(numbers))]))
"""
    assert program(code) == [3000, 3000, 0]


@pytest.mark.torch
def test_what_a_program_makes_its_default_is_no_reason_to_leave_drawing_to_pytorch(program):
    code = f"""{BEGINS}
torch.set_default_dtype(torch.float64)
torch.set_default_device("meta")
states = [one.state for one in backendcfg.apply(settings=NATIVE).outcomes]
torch.empty(SMALL, device="cpu").bernoulli_(0.5)
print(json.dumps([set(states) <= {{"set"}}, len(drawn)]))
"""
    # One is that of the trial.
    assert program(code) == [True, 2]


@pytest.mark.torch
def test_a_variable_is_enough_verify_says_who_draws_and_undo_gives_it_back(program):
    code = f"""{BEGINS}
def draws():
    drawn.clear()
    torch.empty(SMALL).bernoulli_(0.5)
    return len(drawn)
def found():
    return [one.found for one in backendcfg.verify().readings if one.flag == "route.torch.dropout"]
first = draws()
backendcfg.apply(settings=NATIVE)
inside = draws(), found()
backendcfg.undo()
print(json.dumps([first, *inside, draws()]))
"""
    assert program(code) == [0, 1, ["native"], 0]
    code = f"{BEGINS}\ntorch.empty(SMALL).bernoulli_(0.5)\nprint(len(drawn))"
    assert program(code, BACKENDCFG_ROUTE_TORCH_DROPOUT="native") == 1


@pytest.mark.torch
def test_a_pytorch_that_draws_other_numbers_is_not_served(program):
    """One built over MKL on an Intel CPU did; so does one whose generator has another state."""
    code = f"""{BEGINS}
class Other(torch.Tensor):
    def bernoulli_(self, p, generator):
        return super().bernoulli_(1 - p, generator=generator)
class Larger(torch.Generator):
    def get_state(self):
        return torch.cat([super().get_state(), torch.zeros(8, dtype=torch.uint8)])
def made(**changes):
    other = ModuleType("torch")
    vars(other).update(vars(torch) | {{"__version__": "2.99.0"}} | changes)
    return other
print(json.dumps([
    torch_dropout._otherwise(torch),
    torch_dropout._otherwise(made(empty=lambda *given, **named: torch.empty(*given, **named).as_subclass(Other))),
    torch_dropout._otherwise(made(Generator=Larger)),
]))
"""
    refused = "PyTorch 2.99.0 draws other numbers for dropout than our kernel"
    assert program(code) == ["", refused, refused]
