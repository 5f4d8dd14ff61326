"""Where worker processes come from: a server that has imported all that they need, and started no threads."""

from __future__ import annotations

import multiprocessing
from typing import Any

_NEEDED = ["deepsets.scale", "deepsets.estimators", "deepsets.store", "pyarrow.dataset"]


def workers_context() -> Any:
    """What a `ProcessPoolExecutor` wants: processes are forked from the server, or spawned where there can be none."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_NEEDED)
    return context


def start_server() -> None:
    """Its imports take two seconds. Where this process has as much to import, they are done side by side."""
    if workers_context().get_start_method() == "forkserver":
        from multiprocessing import forkserver

        forkserver.ensure_running()
