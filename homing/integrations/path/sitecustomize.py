"""Python runs this before a program whose PYTHONPATH begins with this folder, and in its children: it prepares the reports, and runs the
``sitecustomize`` that would have been run without it.
"""

import importlib.util
import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent
#: What stands beside this folder, under a name that no distribution has: the program may have homing itself, of any version.
_NAME = "_homing_integrations"


def _start() -> None:
    package = _HERE.parent
    spec = importlib.util.spec_from_file_location(_NAME, package / "__init__.py", submodule_search_locations=[str(package)])
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[_NAME] = module
    spec.loader.exec_module(module)
    importlib.import_module(f"{_NAME}.auto")


def _run_other() -> None:
    for folder in sys.path:
        path = Path(folder or ".", "sitecustomize.py")
        if path.is_file() and path.resolve().parent != _HERE:
            spec = importlib.util.spec_from_file_location("sitecustomize", path)
            if spec is not None and spec.loader is not None:
                module = importlib.util.module_from_spec(spec)
                sys.modules["sitecustomize"] = module
                spec.loader.exec_module(module)
            return


try:
    _start()
except Exception as error:  # whatever is wrong here, the program runs as without
    print(f"homing: failures are not reported: {type(error).__name__}: {error}", file=sys.stderr)
_run_other()
