"""Deletes a source, because somebody asked for just that file to be deleted."""

import os
import stat

from memoryd_server.errors import FileNotFound, FileReplaced, PathNotAllowed
from memoryd_server.sources.contained import open_directory, stat_file
from memoryd_server.sources.roots import Location
from memoryd_server.writing.faults import file_errors
from memoryd_server.writing.files import MOST_REPLACEMENTS


def delete(location: Location) -> bool:
    """Deletes a file for good; false where there is none. Blocks.

    A file that another program puts in its place meanwhile is deleted too: an editor's copy holds the same text.

    Raises:
        PathNotAllowed: a component is a link, or the file is not a regular one.
        WorkspaceReadOnly: the file system or its permissions refuse it.
        FileReplaced: another program replaces it again and again.
    """
    deleted = False
    for _ in range(MOST_REPLACEMENTS):
        if not _delete_once(location):
            return deleted
        deleted = True
        if stat_file(location) is None:
            return True
    raise FileReplaced(location.path)


def _delete_once(location: Location) -> bool:
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
