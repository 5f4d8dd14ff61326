"""Keeping freed memory for the next step."""

from __future__ import annotations

import ctypes
import sys

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3


def keep_memory() -> bool:
    """Tells glibc to keep freed memory of this process instead of giving it back to the system at every free.

    Large tensors otherwise cost page faults at every step, often more than the arithmetic. The process may hold more
    memory than it uses at the moment; the setting stays for the life of the process. Returns whether it was done
    (False where the C library is another one).
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    largest = 2**31 - 1
    return bool(
        mallopt(_M_MMAP_THRESHOLD, 2**30) and mallopt(_M_TRIM_THRESHOLD, largest) and mallopt(_M_TOP_PAD, 2**26)
    )
