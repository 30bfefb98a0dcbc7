"""Access to glibc, which reports the size of its heap (``mallinfo2``) and has options for it (``mallopt``)."""

import ctypes
import platform
from functools import cache

FIELDS = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")


class Mallinfo(ctypes.Structure):
    """glibc's ``struct mallinfo2``: statistics of its heap."""

    _fields_ = [(name, ctypes.c_size_t) for name in FIELDS]

    @property
    def in_use(self) -> int:
        """Bytes in use: in the heap, and in large blocks that are mapped individually."""
        return int(self.uordblks + self.hblkhd)


@cache
def glibc() -> ctypes.CDLL | None:
    """The C library of this process; None if it is not glibc, or a version without ``mallinfo2``."""
    if platform.libc_ver()[0] != "glibc":
        return None
    libc = ctypes.CDLL("libc.so.6")
    if not hasattr(libc, "mallinfo2"):
        return None
    libc.mallinfo2.restype = Mallinfo
    return libc
