"""The extension of IPython costs nothing until IPython asks for it."""


def test_the_extension_is_a_name_of_the_package_and_loaded_when_it_is_used(python):
    shown = python(
        """
        import sys
        import backendcfg
        print("backendcfg.notebook" in sys.modules, hasattr(backendcfg, "load_ipython_extension"))
        print(backendcfg.unload_ipython_extension.__module__, "IPython" in sys.modules)
        """
    )
    assert shown == "False True\nbackendcfg.notebook False\n"
