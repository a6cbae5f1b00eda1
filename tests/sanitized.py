"""A pytest plugin: the tests run on the core that KNNPRESS_CORE names, e.g. one built with sanitizers (make sanitize).

It must be loaded by ``-p sanitized`` before anything imports the installed core.
"""

import os
import sys
from importlib.util import module_from_spec, spec_from_file_location

NAME = "knnpress._core"

path = os.path.abspath(os.environ["KNNPRESS_CORE"])
assert NAME not in sys.modules, "the installed core is loaded already"
spec = spec_from_file_location(NAME, path)
sys.modules[NAME] = module = module_from_spec(spec)
spec.loader.exec_module(module)


def pytest_report_header():
    from knnpress import _core

    assert _core.__file__ == path
    return f"core: {os.path.relpath(path)}"
