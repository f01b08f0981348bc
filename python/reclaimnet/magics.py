# SPDX-License-Identifier: Apache-2.0
"""%reclaim_save NAMES and %reclaim_load [NAMES], for IPython and Jupyter: `%load_ext reclaimnet.magics`. The image of
`reclaim notebook` has them loaded already."""
import os
import sys
from typing import Any

from . import variables
from .injob import checkpoint_dir


def _path() -> str:
    return os.path.join(checkpoint_dir(), variables.FILE)


def load_ipython_extension(shell: Any) -> None:
    """Called by IPython."""
    def reclaim_save(line: str) -> None:
        """%reclaim_save NAME ...: keep these variables in the job's folder, for when it runs elsewhere."""
        try:
            size = variables.save(shell.user_ns, line.split(), _path())
            print(f"saved {', '.join(line.split())} ({size} bytes in {variables.FILE})")
        except (variables.VariableError, OSError) as error:
            print(f"%reclaim_save: {error}", file=sys.stderr)

    def reclaim_load(line: str) -> None:
        """%reclaim_load [NAME ...]: have saved variables back; all of them if none is named."""
        try:
            names = variables.load(shell.user_ns, line.split(), _path())
            print(f"loaded {', '.join(names)}")
        except (variables.VariableError, OSError) as error:
            print(f"%reclaim_load: {error}", file=sys.stderr)

    shell.register_magic_function(reclaim_save, "line", "reclaim_save")
    shell.register_magic_function(reclaim_load, "line", "reclaim_load")
