"""Single flags set by a program, over what is in force."""

from __future__ import annotations

import asyncio
import contextvars
import pathlib

import pytest
from elsewhere import open_elsewhere

from backendcfg import _native, errors, session
from backendcfg.schema.host import Host
from backendcfg.session import adjust, installed, planning

HOSTS = pathlib.Path(__file__).parents[1] / "hosts"


@pytest.fixture(autouse=True)
def _nothing_in_force():
    adjust.forget()
    assert _native.current() is None
    yield
    adjust.forget()
    assert _native.chain() == ()
    while installed.prepared() is not None:
        session.undo()


def benchmark() -> bool:
    return session.flags["cudnn.benchmark"]


def test_an_overlay_changes_its_flags_and_nothing_else():
    with adjust.overlay({}):
        before = dict(session.flags)
    wanted = {"cudnn.benchmark": True, "cudnn.benchmark_limit": 3}
    with adjust.overlay(wanted):
        assert dict(session.flags) == {**before, **wanted}
        assert session.active().compiled.asked == tuple(wanted)
    assert session.active() is None


def test_an_overlay_keeps_the_profile_around_it():
    with session.profile("reproducible"), adjust.overlay({"mha.fastpath_enabled": True}):
        assert session.flags["mha.fastpath_enabled"] is True
        assert session.flags["cudnn.deterministic"] is True
        assert session.active().tier == "run-to-run"
        assert session.active().name == "reproducible"


def test_an_overlay_is_resolved_where_it_is_entered():
    one = adjust.overlay({"cudnn.benchmark": True})
    with session.profile("tf32-off"), one:
        assert session.active().name == "tf32-off"
        assert benchmark()
    with one:
        assert session.active().name == "default"
        assert benchmark()


@pytest.mark.slow
def test_an_overlay_over_many_profiles_keeps_the_newest_ways_out_and_those_that_are_open(
    monkeypatch,
):
    monkeypatch.setattr(adjust, "KEPT", 4)
    one = adjust.Overlay({"cudnn.benchmark": True})
    elsewhere = contextvars.copy_context()
    elsewhere.run(one.__enter__)
    inside = elsewhere.run(_native.current)
    for limit in range(12):
        with adjust.overlay({"cudnn.benchmark_limit": limit}), one:
            assert _native.current().payload.values["cudnn.benchmark_limit"] == limit
        assert len(one._exits) <= 4
        assert {scope.prepared for scope in one._entries.values()} <= one._exits.keys()
    assert one._exits[inside].is_open
    elsewhere.run(one.__exit__)
    assert elsewhere.run(_native.current) is None
    assert not one._exits[inside].is_open


def test_overlays_nest_and_may_be_entered_again():
    one = adjust.overlay({"cudnn.benchmark": True})
    with one as entered, adjust.overlay({"cudnn.benchmark": False}), one:
        assert entered is one
        assert benchmark()
        with adjust.overlay({"cudnn.benchmark": False}):
            assert not benchmark()
        assert benchmark()
    assert not benchmark()


def test_an_overlay_left_out_of_order_leaves_nothing_behind():
    one, two = adjust.overlay({"cudnn.benchmark": True}), session.profile("tf32-off")
    one.__enter__()
    two.__enter__()
    one.__exit__(None, None, None)
    assert session.active().name == "tf32-off"
    two.__exit__(None, None, None)
    assert _native.chain() == ()


def test_an_exit_without_an_entry_raises_nothing():
    adjust.overlay({"cudnn.benchmark": True}).__exit__(None, None, None)
    assert _native.chain() == ()


def test_one_overlay_serves_threads_that_stand_under_different_profiles(python):
    # Without PyTorch in the process; with it, its switches have one owner at a time.
    printed = python(
        """
        import threading, backendcfg
        from backendcfg.session import adjust
        one, wrong = adjust.overlay({"cudnn.benchmark": True}), []
        together = threading.Barrier(3, timeout=60)
        def work(name):
            with backendcfg.profile(name):
                for _ in range(200):
                    together.wait()
                    with one:
                        together.wait()
                        here = backendcfg.active().name, backendcfg.flags["cudnn.benchmark"]
                        if here != (name, True):
                            wrong.append(here)
                    if backendcfg.flags["cudnn.benchmark"]:
                        wrong.append(f"{name} outside")
        names = ("tf32-off", "debug", "tf32-off")
        threads = [threading.Thread(target=work, args=(name,)) for name in names]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        print(wrong, together.broken)
        """
    )
    assert printed == "[] False\n"


def test_an_overlay_decorates_functions_coroutines_and_generators():
    one = adjust.overlay({"cudnn.benchmark": True})

    @one
    def function():
        return benchmark()

    @one
    async def coroutine():
        await asyncio.sleep(0)
        return benchmark()

    @one
    def generator():
        yield benchmark()
        yield benchmark()

    assert function() is True
    assert asyncio.run(coroutine()) is True
    seen = []
    for value in generator():
        seen += [value, benchmark()]
    assert seen == [True, False, True, False]


def test_an_overlay_of_a_task_is_not_seen_by_others():
    one, seen = adjust.overlay({"cudnn.benchmark": True}), []

    async def inside():
        async with one:
            await asyncio.sleep(0)
            seen.append(benchmark())
            await asyncio.sleep(0)

    async def outside():
        for _ in range(3):
            seen.append(benchmark())
            await asyncio.sleep(0)

    async def both():
        await asyncio.gather(inside(), outside())

    asyncio.run(both())
    assert sorted(seen) == [False, False, False, True]


def test_the_second_time_nothing_is_resolved(monkeypatch):
    with adjust.overlay({"cudnn.benchmark": True}):
        pass
    monkeypatch.setattr(adjust, "_vary", None)
    with adjust.overlay({"cudnn.benchmark": True}):
        assert benchmark()


def test_what_python_holds_equal_is_not_taken_for_what_was_valid():
    with adjust.overlay({"cudnn.benchmark": True}):
        pass
    adjust.assign({"cudnn.benchmark": True})
    for wrong in (1, 1.0):
        with pytest.raises(errors.WrongTypeError), adjust.overlay({"cudnn.benchmark": wrong}):
            pass
        with pytest.raises(errors.WrongTypeError):
            adjust.assign({"cudnn.benchmark": wrong})


def test_assign_changes_the_base_and_undo_takes_it_back():
    adjust.assign({"cudnn.benchmark": True})
    adjust.assign({"cudnn.benchmark_limit": 4})
    assert benchmark()
    assert session.flags["cudnn.benchmark_limit"] == 4
    assert session.active().source == "adjusted by the program"
    assert session.undo() is None
    assert session.active() is None
    assert not benchmark()


def test_assign_over_an_applied_profile_is_undone_together_with_it():
    session.apply("tf32-off")
    adjust.assign({"cudnn.benchmark": True})
    adjust.assign({"cudnn.benchmark": False})
    adjust.assign({"cudnn.benchmark": True})
    active = session.active()
    assert (active.name, active.source) == (
        "tf32-off",
        "backendcfg.apply, adjusted by the program",
    )
    assert benchmark()
    assert session.undo() is None


def test_the_same_change_made_again_is_the_same_plan():
    adjust.assign({"cudnn.benchmark": True})
    first = _native.current()
    adjust.assign({"cudnn.benchmark": False})
    adjust.assign({"cudnn.benchmark": True})
    assert _native.current() is first


def test_a_legacy_spelling_and_the_flag_itself_replace_each_other():
    session.apply(settings={"cuda.matmul.allow_tf32": True})
    assert session.flags["cuda.matmul.fp32_precision"] == "tf32"
    adjust.assign({"cuda.matmul.fp32_precision": "ieee"})
    assert session.flags["cuda.matmul.fp32_precision"] == "ieee"
    adjust.assign({"cuda.matmul.allow_tf32": True})
    assert session.flags["cuda.matmul.fp32_precision"] == "tf32"


WRONG = [
    (
        {"cudnn.benchmrk": True},
        errors.UnknownFlagError,
        "there is no flag `cudnn.benchmrk`",
        ("did you mean `cudnn.benchmark`?",),
    ),
    (
        {"cudnn.benchmark": 1},
        errors.WrongTypeError,
        "`cudnn.benchmark` must be true or false, not the integer 1",
        ("write `cudnn.benchmark = true`",),
    ),
    (
        {"cudnn.benchmark": None},
        errors.WrongTypeError,
        "`cudnn.benchmark` must be true or false, not None",
        (),
    ),
    (
        {"opt_einsum.strategy": "dp"},
        errors.InvalidValueError,
        '`opt_einsum.strategy` must be one of "auto", "greedy", "optimal", not "dp"',
        (),
    ),
    (
        {"cudnn.benchmark_limit": -1},
        errors.InvalidValueError,
        "`cudnn.benchmark_limit` must be an integer of at least 0, not -1",
        (),
    ),
    (
        {"cudnn.allow_tf32": True, "cudnn.conv.fp32_precision": "ieee"},
        errors.ConflictingFlagsError,
        "`cudnn.allow_tf32` and `cudnn.conv.fp32_precision` are two spellings of one flag",
        ("remove one of them",),
    ),
]


@pytest.mark.parametrize(("values", "kind", "message", "helps"), WRONG)
def test_what_is_wrong_is_refused_and_nothing_is_changed(values, kind, message, helps):
    adjust.assign({"cudnn.benchmark": True})
    before = _native.current()
    for attempt in (adjust.assign, lambda values: adjust.overlay(values).__enter__()):
        with pytest.raises(kind) as refused:
            attempt(values)
        assert (refused.value.message, refused.value.helps) == (message, helps)
    assert _native.current() is before


@pytest.mark.torch
def test_a_change_that_breaks_the_tier_is_refused_by_the_resolver():
    session.apply("reproducible")
    before = _native.current()
    with pytest.raises(errors.ConflictingFlagsError) as refused:
        adjust.assign({"determinism.algorithms": "warn"})
    assert refused.value.message == (
        '`determinism.algorithms = "warn"` and `determinism.tier = "run-to-run"` cannot both hold'
    )
    with pytest.raises(errors.ConflictingFlagsError):
        adjust.overlay({"determinism.algorithms": "warn"}).__enter__()
    assert _native.current() is before


def test_a_change_that_breaks_the_tier_on_a_gpu_is_refused_there(monkeypatch):
    host = Host.model_validate_json((HOSTS / "epyc-h200-two-visible--openblas.json").read_text())
    monkeypatch.setattr(planning, "detect", lambda: host)
    with session.profile("reproducible"), pytest.raises(errors.ConflictingFlagsError) as refused:
        adjust.adjusted({"cudnn.benchmark": True})
    assert refused.value.message == (
        '`cudnn.benchmark = true` and `determinism.tier = "run-to-run"` cannot both hold'
    )


def test_a_change_that_an_open_scope_would_hide_is_refused():
    with session.profile("debug"):
        with pytest.raises(errors.ProfileBusyError) as refused:
            adjust.assign({"log.level": "error"})
        assert refused.value.message == (
            "profile `debug`, whose scope is open here, holds `log.level` at debug, so error"
            " would not be in force"
        )
        assert installed.prepared() is None
        adjust.assign({"log.level": "debug"})
    assert session.flags["log.level"] == "debug"


def test_reload_reads_the_files_again(tmp_path, monkeypatch):
    profiles = tmp_path / "profiles"
    profiles.mkdir()
    file = profiles / "mine.toml"
    file.write_text("cudnn.benchmark_limit = 3\n")
    monkeypatch.setenv("BACKENDCFG_CONFIG_DIR", str(tmp_path))
    session.apply("mine")
    one, seen = adjust.overlay({"cudnn.benchmark": True}), []
    with one:
        seen.append(session.flags["cudnn.benchmark_limit"])
    file.write_text("cudnn.benchmark_limit = 44\n")
    with one:
        seen.append(session.flags["cudnn.benchmark_limit"])
    with one:
        session.reload()
    assert _native.chain() == ()
    with one:
        seen.append(session.flags["cudnn.benchmark_limit"])
    assert seen == [3, 3, 44]


def test_a_project_profile_is_found_again_from_another_folder(tmp_path, monkeypatch):
    project = tmp_path / "project"
    (project / "profiles").mkdir(parents=True)
    (project / "backendcfg.toml").write_text("")
    (project / "profiles" / "ours.toml").write_text("cudnn.benchmark_limit = 3\n")
    monkeypatch.chdir(project)
    session.apply("ours")
    monkeypatch.chdir(tmp_path)
    adjust.assign({"cudnn.benchmark": True})
    assert session.active().name == "ours"
    assert session.flags["cudnn.benchmark_limit"] == 3


def test_settings_files_are_not_put_in_force_by_a_change_of_one_flag(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "backendcfg.toml").write_text('profile = "debug"\ncudnn.benchmark_limit = 3\n')
    adjust.assign({"cudnn.benchmark": True})
    assert session.active().name == "default"
    assert session.flags["cudnn.benchmark_limit"] == 10


@pytest.mark.parametrize(("busy", "named"), [("later", "'later'"), ([], r"\[\]")])
def test_an_unknown_way_to_wait_is_an_error(busy, named):
    with pytest.raises(
        errors.InvalidArgumentError,
        match=rf'^`busy` must be "raise", "wait" or "skip", not {named}(?m:$)',
    ):
        adjust.overlay({"cudnn.benchmark": True}, busy=busy)


def test_overlays_that_disagree_over_a_process_wide_switch_are_busy():
    import numpy as np  # noqa: F401 - its OpenBLAS has such a switch

    with open_elsewhere(adjust.overlay({"threads.count": 1})):
        with (
            pytest.raises(errors.ProfileBusyError, match=r"wants `openblas\[\w+\]\.threads`"),
            adjust.overlay({"threads.count": 2}),
        ):
            pass
        with adjust.overlay({"threads.count": 2}, busy="skip"):
            assert session.flags["threads.count"] == 2


def test_a_disabled_backendcfg_changes_nothing(monkeypatch):
    monkeypatch.setenv("BACKENDCFG_DISABLE", "1")
    adjust.assign({"cudnn.benchmark": True})
    assert session.active() is None
    with adjust.overlay({"cudnn.benchmark": True}):
        assert not benchmark()
    assert _native.current() is None


def test_a_switch_that_cannot_be_set_leaves_the_old_value(python):
    printed = python(
        """
        import numpy, threadpoolctl, backendcfg
        from backendcfg.bridges import pools as bridge
        from backendcfg.session import adjust
        def threads():
            return threadpoolctl.threadpool_info()[0]["num_threads"]
        adjust.assign({"threads.count": 2})
        write = bridge.Threads.write
        bridge.Threads.write = lambda self, value: (write(self, value), value == 1 and 1 / 0)
        try:
            adjust.assign({"threads.count": 1})
        except backendcfg.errors.RolledBackError:
            print(threads(), backendcfg.flags["threads.count"])
        bridge.Threads.write = write
        with adjust.overlay({"threads.count": 1}):
            print(threads())
        adjust.assign({"threads.count": 1})
        print(threads())
        backendcfg.undo()
        print(threads() >= 2, backendcfg.active())
        """
    )
    assert printed.splitlines() == ["2 2", "1", "1", "True None"]


def test_assignments_of_many_threads_are_all_there(python):
    printed = python(
        """
        import threading, backendcfg
        from backendcfg.session import adjust
        flags = ["cudnn.enabled", "mha.fastpath_enabled", "mkldnn.enabled", "nnpack.enabled"]
        def work(flag):
            for value in (False, True, False, True):
                adjust.assign({flag: value})
            adjust.assign({flag: flag != "cudnn.enabled"})
        threads = [threading.Thread(target=work, args=(flag,)) for flag in flags]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        print([backendcfg.flags[flag] for flag in flags])
        """
    )
    assert printed == "[False, True, True, True]\n"
