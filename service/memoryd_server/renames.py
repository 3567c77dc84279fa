"""Renames that overwrite no file: exchange two names, or rename to a free name.

Both are one step of the Linux call renameat2, which not every system and file system has. Each method reports with its
return value that it is not available, and then nothing was changed. The names are relative to open folders.
"""

import ctypes
import errno
import os
from dataclasses import dataclass

# Of linux/fs.h.
_NO_REPLACE, _EXCHANGE = 1, 2
_NOT_AVAILABLE = frozenset({errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP})
_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})


@dataclass(frozen=True, slots=True)
class Renames:
    """The renames of this system, without those that are set to False."""

    exchanges: bool = True
    to_free_names: bool = True
    links: bool = True

    def exchange(self, folder: int, one: str, other: str) -> bool:
        """Exchange two files of a folder in one step; return False if the system or the file system cannot.

        Raises:
            FileNotFoundError: one of the names does not exist.
            OSError: the file system refuses it.
        """
        return self.exchanges and _renameat2(folder, one, folder, other, _EXCHANGE)

    def to_free_name(self, folder: int, name: str, new_folder: int, new_name: str) -> bool:
        """Rename a file to a name that is free; return False if the system or the file system cannot in one step.

        Raises:
            FileExistsError: the new name is taken.
            FileNotFoundError: the file does not exist.
            OSError: the file system refuses it.
        """
        return self.to_free_names and _renameat2(folder, name, new_folder, new_name, _NO_REPLACE)

    def link(self, folder: int, name: str, new_folder: int, new_name: str) -> bool:
        """Give a file a second name; return False if the file system has no hard links.

        Raises:
            FileExistsError: the new name is taken.
            FileNotFoundError: the file does not exist.
            OSError: the file system refuses it.
        """
        if not self.links:
            return False
        try:
            os.link(name, new_name, src_dir_fd=folder, dst_dir_fd=new_folder, follow_symlinks=False)
        except OSError as error:
            if error.errno in _NO_LINKS:
                return False
            raise
        return True


def _renameat2(folder: int, name: str, new_folder: int, new_name: str, flags: int) -> bool:
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:
        return False
    if call(folder, os.fsencode(name), new_folder, os.fsencode(new_name), ctypes.c_uint(flags)) == 0:
        return True
    code = ctypes.get_errno()
    if code in _NOT_AVAILABLE:
        return False
    raise OSError(code, os.strerror(code), name, None, new_name)
