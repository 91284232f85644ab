"""A flag that the schema declares with `calls` is set by the bridge and offered by the face."""

from types import SimpleNamespace

from backendcfg.backends.base import FlagProperty, add_simple_flags
from backendcfg.bridges.torch import switches
from backendcfg.defaults import TORCH_CALLS
from backendcfg.schema.profile import flags


def test_a_simple_flag_needs_nothing_but_its_field(monkeypatch):
    monkeypatch.setitem(TORCH_CALLS, "cudnn.brand_new", ("_get_brand_new", "_set_brand_new"))

    class Module:
        """What stands for `backends.cudnn`."""

    add_simple_flags(Module, "cudnn")
    assert isinstance(vars(Module)["brand_new"], FlagProperty)

    state = [False]
    calls = SimpleNamespace(
        _get_brand_new=lambda: state[0], _set_brand_new=lambda value: state.__setitem__(0, value)
    )
    values = {"cudnn.brand_new": True}
    [setting] = switches.collect(SimpleNamespace(_C=calls), values, values)
    setting.switch.write(setting.wanted)
    assert (setting.switch.name, state) == ("torch.backends.cudnn.brand_new", [True])


def test_the_attributes_of_a_class_stay():
    class Module:
        """What stands for `backends.cudnn`."""

        enabled = "its own"

    add_simple_flags(Module, "cudnn")
    assert Module.enabled == "its own"
    assert "deterministic" in vars(Module)


def test_the_table_has_the_flags_that_the_schema_declares():
    declared = {name for name, found in flags().items() if found.flag.calls}
    assert set(TORCH_CALLS) == declared
