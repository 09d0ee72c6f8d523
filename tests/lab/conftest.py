"""Run on the host, this gives each test module a guest of its own; run in the guest, it reports back."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # the modules beside this one, whatever pytest's import mode

if os.environ.get("ZVAULT_LAB"):
    # What is installed is what is tested, not the checkout beside it.
    sys.path[:] = [folder for folder in sys.path if folder != str(Path(__file__).parents[2])]
    from report_to_host import (  # noqa: F401
        pytest_collection_finish,
        pytest_collection_modifyitems,
        pytest_collectreport,
        pytest_runtest_logreport,
        pytest_runtest_makereport,
        pytest_runtest_protocol,
    )
else:
    from run_modules import (  # noqa: F401
        pytest_addoption,
        pytest_configure,
        pytest_pycollect_makemodule,
        pytest_report_header,
        pytest_runtestloop,
        pytest_terminal_summary,
    )
