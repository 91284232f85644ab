"""Layers fold, weakest first, into one value per flag that remembers what it won over."""

from resolve_builders import a_host, a_layer, a_profile, a_stack, settings, variables

from backendcfg.resolve.plan import resolve
from backendcfg.schema.profile import defaults


def test_every_flag_has_an_entry_in_schema_order():
    plan = resolve(a_stack(), a_host())
    assert [entry.flag for entry in plan.entries] == list(defaults())


def test_a_stack_without_layers_gives_the_defaults():
    plan = resolve(a_stack(), a_host())
    changed = {flag: value for flag, value in plan.values().items() if value != defaults()[flag]}
    assert changed == {
        "threads.count": 2,
        "threads.interop": 2,
        "blas.library": "openblas",
        "cuda.preferred_linalg_library": "default",
        "cuda.preferred_blas_library": "default",
        "cuda.preferred_rocm_fa_library": "default",
    }
    assert plan.asked() == {}
    assert {entry.origin.rank for entry in plan.entries} == {"default"}


def test_a_stronger_layer_wins_and_remembers_what_it_hides():
    stack = a_stack(
        settings("user-file", "config.toml", {"threads.count": 8}, "/home/ana/config.toml"),
        a_layer("base", {"threads.count": 4}),
        a_layer("fast", {"threads.count": 2}),
        variables({"threads.count": 1}),
    )
    entry = resolve(stack, a_host()).entry("threads.count")
    assert entry.value == 1
    assert entry.origin.place.name == "BACKENDCFG_THREADS_COUNT"
    assert [(hidden.value, hidden.origin.title) for hidden in entry.hides] == [
        (2, "profile `fast`"),
        (4, "profile `base`"),
        (8, "config.toml"),
        ("auto", "default"),
    ]


def test_an_origin_has_rank_title_and_place():
    entry = resolve(a_profile({"mkldnn.enabled": False}), a_host()).entry("mkldnn.enabled")
    assert entry.origin.rank == "profile-by-argument"
    assert entry.origin.title == "profile `mine`"
    assert (entry.origin.place.path, entry.origin.place.line) == ("profiles/mine.toml", 3)


def test_drop_removes_what_parents_set():
    stack = a_stack(
        a_layer("base", {"threads.count": 4, "threads.dynamic": False, "mkldnn.enabled": False}),
        a_layer("fast", {"threads.dynamic": True}, drop=("threads",)),
    )
    plan = resolve(stack, a_host())
    assert plan.entry("threads.count").origin.rank == "default"
    assert [hidden.value for hidden in plan.entry("threads.dynamic").hides] == [True]
    assert plan.entry("mkldnn.enabled").value is False


def test_drop_leaves_settings_files_alone():
    stack = a_stack(
        settings("user-file", "config.toml", {"threads.count": 8}),
        a_layer("base", {"threads.count": 4}),
        a_layer("fast", drop=("threads.count",)),
    )
    entry = resolve(stack, a_host()).entry("threads.count")
    assert (entry.value, entry.origin.title) == (8, "config.toml")


def test_drop_of_a_legacy_spelling_drops_what_it_stands_for():
    stack = a_stack(
        a_layer("base", {"cudnn.conv.fp32_precision": "ieee", "cudnn.rnn.fp32_precision": "ieee"}),
        a_layer("fast", drop=("cudnn.allow_tf32",)),
    )
    assert resolve(stack, a_host()).asked() == {}


def test_a_when_table_applies_right_after_its_own_file():
    amd = {"cpu": {"vendor": "amd"}}
    stack = a_stack(
        a_layer("base", {"threads.count": 4}, when=[(amd, {"threads.count": 3})]),
        a_layer("fast", {"threads.count": 2}),
    )
    entry = resolve(stack, a_host()).entry("threads.count")
    assert [entry.value, *(hidden.value for hidden in entry.hides)] == [2, 3, 4, "auto"]


def test_when_tables_apply_in_order_and_only_where_they_hold():
    amd, intel = {"cpu": {"vendor": "amd"}}, {"cpu": {"vendor": "intel"}}
    stack = a_profile(
        when=[
            (amd, {"threads.count": 3}),
            (intel, {"threads.count": 5}),
            (amd, {"threads.count": 7}),
        ]
    )
    plan = resolve(stack, a_host())
    assert plan.entry("threads.count").value == 7
    assert [(check.met, check.because) for check in plan.checks] == [
        (True, "`[[when]]` in profile `mine`"),
        (False, "`[[when]]` in profile `mine`"),
        (True, "`[[when]]` in profile `mine`"),
    ]


def test_variables_of_parents_and_children_add_up():
    stack = a_stack(
        a_layer("base", {"environment": {"KMP_BLOCKTIME": "1", "OMP_PLACES": "cores"}}),
        a_layer("fast", {"environment": {"KMP_BLOCKTIME": "0"}}),
    )
    plan = resolve(stack, a_host())
    assert plan.entry("environment").value == {"KMP_BLOCKTIME": "0", "OMP_PLACES": "cores"}


def test_the_description_is_the_strongest_layers():
    stack = a_stack(
        a_layer("base", description="the base"),
        a_layer("fast", description="the fast one"),
        variables({"threads.count": 1}),
    )
    assert resolve(stack, a_host()).description == "the fast one"
