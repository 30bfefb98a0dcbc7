"""The C library, where it is glibc, which can be asked about its heap and told how to treat it."""

import ctypes
import platform
from functools import cache

FIELDS = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")


class Mallinfo(ctypes.Structure):
    """glibc's ``struct mallinfo2``, its own count of its heap."""

    _fields_ = [(name, ctypes.c_size_t) for name in FIELDS]

    @property
    def in_use(self) -> int:
        """Bytes in use, in the heap and in blocks mapped one by one."""
        return int(self.uordblks + self.hblkhd)


@cache
def glibc() -> ctypes.CDLL | None:
    """The C library; None if it is another one, or older than ``mallinfo2``."""
    if platform.libc_ver()[0] != "glibc":
        return None
    libc = ctypes.CDLL("libc.so.6")
    if not hasattr(libc, "mallinfo2"):
        return None
    libc.mallinfo2.restype = Mallinfo
    return libc
