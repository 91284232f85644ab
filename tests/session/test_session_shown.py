"""What a notebook shows of the answers of the public functions: a few lines, never a page."""


def test_the_answers_of_a_session_are_short(python):
    shown = python(
        """
        import backendcfg
        print(backendcfg.active())
        print(repr(backendcfg.apply("fast", settings={"threads.count": 1})))
        print(backendcfg.active())
        with backendcfg.profile("tf32-off"):
            print(backendcfg.active())
        """,
        BACKENDCFG_PROFILE="tf32-off",
    )
    first, report, stays, *late, applied, scoped = shown.splitlines()
    assert (
        "Active(name='tf32-off', tier='none', source='BACKENDCFG_PROFILE', scoped=False)" == first
    )
    assert report.startswith("fast (no tier): ")
    assert " dormant" in report
    assert stays == "  irreversible malloc.keep_freed: the value it had cannot be written back"
    assert [line for line in late if not line.startswith("  pending OPENBLAS_")] == []
    assert "Active(name='fast', tier='none', source='backendcfg.apply', scoped=False)" == applied
    assert "Active(name='tf32-off', tier='none', source='a scope', scoped=True)" == scoped


def test_a_verification_shows_what_is_not_as_wanted(python):
    shown = python(
        """
        import os
        import backendcfg
        print(backendcfg.verify())
        backendcfg.apply("fast", settings={"threads.count": 1})
        os.environ["OMP_NUM_THREADS"] = "7"
        print(backendcfg.verify())
        """
    )
    none, summary, differs, *_ = shown.splitlines()
    assert "no profile is in force" == none
    assert summary.startswith("fast (no tier): ")
    assert differs == (
        "  differs OMP_NUM_THREADS: wanted '1', found '7'; something other than backendcfg wrote it"
    )


def test_a_plan_shows_what_was_asked_for(python):
    shown = python("import backendcfg; print(repr(backendcfg.plan('tf32-off')))")
    assert shown.startswith("Plan(name='tf32-off', tier='none', host='")
    assert "asked={" in shown
    assert "'threads.count'" not in shown


def test_the_flags_in_force_stay_a_public_name_when_operations_are_imported(python):
    code = "import backendcfg, backendcfg.ops; print(backendcfg.flags['cudnn.enabled'])"
    assert python(code) == "True\n"


def test_the_flags_in_force_are_a_mapping_for_names_that_are_none_too():
    import backendcfg

    assert "cudnn.enabled" in backendcfg.flags
    assert "cuda.matmul.allow_tf32" in backendcfg.flags
    assert not [name for name in ("cudnn", "cudnn.no", 3, None) if name in backendcfg.flags]
    assert backendcfg.flags.get("cudnn.no", "default") == "default"
    assert backendcfg.flags.cudnn.get("enabled") is backendcfg.flags["cudnn.enabled"]


def test_a_notebook_shows_tables(python):
    shown = python(
        """
        import numpy as np
        import backendcfg
        from backendcfg import ops

        def first(answer):
            lines = answer._repr_html_().splitlines()
            assert lines[0] == "<table>" and "</table>" in lines
            return lines[1], lines[2].count("<th "), sum("<td " in line for line in lines)

        with backendcfg.profile("tf32-off"):
            print(*first(backendcfg.active()), sep="|")
            print(*first(backendcfg.verify()), sep="|")
        print(*first(backendcfg.plan("tf32-off")), sep="|")
        with ops.trace() as calls:
            ops.matmul(np.eye(4), np.eye(4))
        print(*first(calls), sep="|")
        print(*first(ops.explain("matmul", ((4, 4), (4, 4)))), sep="|")
        print(*first(ops.stats()), sep="|")
        print(repr(calls) == str(calls), repr(calls).startswith("matmul  "))
        """
    )
    active, verified, plan, calls, explained, stats, same = shown.splitlines()
    assert active.startswith("<caption>tf32-off (tier none), from a scope</caption>|2|")
    assert verified.startswith("<caption>tf32-off (no tier): ")
    assert plan.startswith("<caption>tf32-off (tier none) on ")
    assert calls == "<caption>calls</caption>|5|1"
    assert explained.startswith("<caption>dgemm")
    assert stats.startswith("<caption>served</caption>|4|")
    assert same == "True True"
