"""Deletes a source, because somebody asked for just that file to be deleted."""

import os
import stat

from memoryd_server.errors import FileNotFound, PathNotAllowed
from memoryd_server.sources.contained import open_directory
from memoryd_server.sources.roots import Location
from memoryd_server.writing.faults import file_errors


def delete(location: Location) -> bool:
    """Deletes a file for good; false where there is none. Blocks.

    Raises:
        PathNotAllowed: a component is a link, or the file is not a regular one.
        WorkspaceReadOnly: the file system or its permissions refuse it.
    """
    try:
        folder = open_directory(location.root, location.parts[:-1])
    except FileNotFound:
        return False
    name = location.parts[-1]
    try:
        with file_errors(location.path):
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if not stat.S_ISREG(status.st_mode):
                raise PathNotAllowed(location.path, "it is a link, a folder, a device or a pipe, not a plain file")
            os.unlink(name, dir_fd=folder)
            os.fsync(folder)
    except FileNotFoundError:
        return False
    finally:
        os.close(folder)
    return True
