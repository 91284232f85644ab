"""Whether a stored plan still holds, and what changed, in words."""

from __future__ import annotations

import json
import os
import sys
import time

import pytest

from backendcfg.probe.stamp import holds, stamp


@pytest.fixture
def profile(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "profiles" / "fast.toml"
    path.parent.mkdir()
    path.write_text("schema = 1\n")
    return path


def through_json(stamp):
    return json.loads(json.dumps(stamp))


def test_a_stamp_holds_while_nothing_changes(profile):
    made = through_json(stamp([profile], [profile.parent / "none.toml"]))
    assert holds(made) == ""


def test_a_changed_file_is_named_as_its_reader_would(profile):
    made = through_json(stamp([profile]))
    profile.write_text("schema = 2\n")
    assert holds(made) == "file profiles/fast.toml changed"


def test_a_file_elsewhere_is_named_by_its_whole_path(profile, tmp_path_factory):
    made = through_json(stamp([profile]))
    os.chdir(tmp_path_factory.mktemp("elsewhere"))
    profile.unlink()
    assert holds(made) == f"file {profile} is gone"


def test_in_the_root_directory_a_file_is_named_by_its_whole_path(profile):
    made = through_json(stamp([profile]))
    os.chdir("/")
    profile.unlink()
    assert holds(made) == f"file {profile} is gone"


def test_a_file_replaced_by_one_of_the_same_size_and_time_is_noticed(profile):
    made = through_json(stamp([profile]))
    status = profile.stat()
    other = profile.with_suffix(".new")
    other.write_text("schema = 9\n")
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    other.replace(profile)
    assert holds(made) == "file profiles/fast.toml changed"


@pytest.mark.parametrize("edit", ["content", "mode"])
def test_an_edit_that_keeps_the_time_and_the_size_is_noticed(profile, edit):
    made = through_json(stamp([profile]))
    status = profile.stat()
    if edit == "content":
        profile.write_text("schema = 9\n")
        os.utime(profile, ns=(status.st_atime_ns, status.st_mtime_ns))
    else:
        profile.chmod(0o666)
    assert holds(made) == "file profiles/fast.toml changed"


@pytest.mark.parametrize(("again_after", "until"), [(0.0, 0.0), (600.0, 600.0), (5.0, 5.0)])
def test_a_stamp_holds_until_a_probe_that_gave_no_answer_may_give_one(
    profile, monkeypatch, again_after, until
):
    made = through_json(stamp([profile], unanswered={"libblis.so gave no answer": again_after}))
    now = time.time
    assert (holds(made) == "") is (until > 0.0)
    monkeypatch.setattr(time, "time", lambda: now() + until)
    assert holds(made) == "when the plan was made, libblis.so gave no answer"
    monkeypatch.setattr(time, "time", lambda: now() - 86_400)  # a clock that was set back
    assert holds(made) == "when the plan was made, libblis.so gave no answer"


def test_a_link_to_a_file_of_the_package_changes_nothing(profile, monkeypatch, tmp_path):
    installed = tmp_path / "package" / "fast.toml"
    installed.parent.mkdir()
    installed.write_text("")
    monkeypatch.setattr("backendcfg.probe.stamp._PACKAGE", f"{installed.parent}/")
    made = through_json(stamp([profile, installed]))
    os.link(installed, tmp_path / "linked.toml")  # as installers do
    assert holds(made) == ""


def test_a_missing_file_that_appears_is_named(profile):
    missing = profile.with_name("base.toml")
    made = through_json(stamp([profile], [missing]))
    missing.write_text("")
    assert holds(made) == "file profiles/base.toml appeared"


def test_a_file_that_was_unreadable_and_appears_is_named(profile):
    late = profile.with_name("late.toml")
    made = through_json(stamp([late]))
    late.write_text("")
    assert holds(made) == "file profiles/late.toml appeared"


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        (None, "4", "OMP_NUM_THREADS is set now"),
        ("4", None, "OMP_NUM_THREADS is no longer set"),
        ("4", "", "OMP_NUM_THREADS is no longer set"),
        ("4", "8", "OMP_NUM_THREADS changed from 4 to 8"),
    ],
)
def test_a_variable_that_matters_is_named(monkeypatch, before, now, said):
    def put(value):
        if value is None:
            monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
        else:
            monkeypatch.setenv("OMP_NUM_THREADS", value)

    put(before)
    made = through_json(stamp([]))
    put(now)
    assert holds(made) == said


@pytest.mark.parametrize(
    "name",
    [
        "OPENBLAS_CORETYPE",
        "MKL_CBWR",
        "BLIS_ARCH_TYPE",
        "GOTO_NUM_THREADS",
        "NVIDIA_TF32_OVERRIDE",
        "CUDA_VISIBLE_DEVICES",
        "LD_PRELOAD",
        "LD_BIND_NOW",
        "BACKENDCFG_CUDNN_BENCHMARK",
    ],
)
def test_every_variable_that_a_plan_may_rest_on_counts(name):
    made = stamp([], environment={})
    assert holds(made, environment={name: "1"}) == f"{name} is set now"


@pytest.mark.parametrize(
    "name",
    [
        "HOME",
        "PATH",
        "BACKENDCFG_PROFILE",
        "BACKENDCFG_STATE_DIR",
        "BACKENDCFG_CACHE_DIR",
        "BACKENDCFG_STARTED_BY",
        "BACKENDCFG_RECORDS",
        "BACKENDCFG_RANKS",
        "BACKENDCFG_GUARD",
        "KMP_DUPLICATE_LIB_OK",
    ],
)
def test_other_variables_do_not(name):
    made = stamp([], environment={})
    assert holds(made, environment={name: "1"}) == ""


def test_hiding_every_device_is_a_change():
    made = stamp([], environment={})
    said = holds(made, environment={"CUDA_VISIBLE_DEVICES": ""})
    assert said == "CUDA_VISIBLE_DEVICES is set now"


def test_a_narrower_affinity_is_named():
    before = os.sched_getaffinity(0)
    if len(before) < 2:
        pytest.skip("one processor cannot be narrowed")
    made = through_json(stamp([]))
    try:
        os.sched_setaffinity(0, {min(before)})
        assert holds(made) == (
            f"the number of processors that the affinity allows was {len(before)} and is 1 now"
        )
        made = through_json(stamp([]))
        os.sched_setaffinity(0, {max(before)})
        assert holds(made) == ""
    finally:
        os.sched_setaffinity(0, before)


def test_another_quota_is_named():
    made = through_json(stamp([]))
    made["limits"]["the processor quota"] = 1.5
    assert holds(made) == "the processor quota was 1.5 and is none now"


def test_another_driver_is_named():
    made = through_json(stamp([]))
    made["drivers"]["/proc/driver/nvidia/version"] = "NVRM version: 550.54.15"
    assert holds(made) == "the NVIDIA driver changed"


def test_another_python_is_named():
    made = through_json(stamp([]))
    made["python"]["Python"] = "3.9.1"
    now = sys.version.split()[0]
    assert holds(made) == f"Python was 3.9.1 and is {now} now"


@pytest.fixture
def site(tmp_path, monkeypatch):
    directory = tmp_path / "site"
    (directory / "numpy-2.1.0.dist-info").mkdir(parents=True)
    (directory / "requests-2.32.0.dist-info").mkdir()
    monkeypatch.setattr(sys, "path", [*sys.path, str(directory)])
    return directory


def test_an_installed_package_is_named(site):
    made = through_json(stamp([]))
    (site / "torch-2.13.0+cpu.dist-info").mkdir()
    assert holds(made) == "package torch-2.13.0+cpu was installed"


def test_a_removed_package_is_named(site):
    made = through_json(stamp([]))
    (site / "numpy-2.1.0.dist-info").rmdir()
    assert holds(made) == "package numpy-2.1.0 was removed"


def test_a_reinstalled_package_is_named(site):
    made = through_json(stamp([]))
    os.utime(site / "numpy-2.1.0.dist-info", ns=(1, 1))
    assert holds(made) == "package numpy-2.1.0 was reinstalled"


def test_packages_that_do_not_compute_do_not_count(site):
    made = through_json(stamp([]))
    (site / "flask-3.0.0.dist-info").mkdir()
    (site / "torchgen_helper-1.0.dist-info").mkdir()
    (site / "requests-2.32.0.dist-info").rmdir()
    assert holds(made) == ""


def test_a_directory_new_on_the_path_counts_when_it_has_such_packages(tmp_path, monkeypatch):
    made = through_json(stamp([]))
    (tmp_path / "more").mkdir()
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "more")])
    assert holds(made) == ""
    (tmp_path / "more" / "mkl-2025.1.dist-info").mkdir()
    assert holds(made) == "package mkl-2025.1 was installed"


def test_a_start_up_file_that_runs_before_the_path_is_whole_still_holds(site, monkeypatch):
    made = through_json(stamp([]))
    monkeypatch.setattr(sys, "path", sys.path[:-1])
    assert holds(made) == ""


@pytest.mark.parametrize(
    "made",
    [{}, {"version": 2}, {"version": 1}, {"version": 1, "python": 3}, {"version": 1, "python": {}}],
)
def test_a_stamp_of_another_release_does_not_hold(made):
    assert holds(made) == "the stored plan is from another release of backendcfg"


@pytest.mark.parametrize("what", ["the processor", "the list of NVIDIA GPUs"])
def test_a_plan_of_another_host_that_shares_the_home_does_not_hold(what):
    made = through_json(stamp([]))
    made["limits"][what] = "another"
    assert holds(made).startswith(f"{what} was another and is ")
