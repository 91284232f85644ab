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
    first, report, applied, scoped = shown.splitlines()
    assert (
        "Active(name='tf32-off', tier='none', source='BACKENDCFG_PROFILE', scoped=False)" == first
    )
    assert report.startswith("fast (no tier): ")
    assert " dormant" in report
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
