"""What makes a change of names in a folder survive a power cut."""

import os
from pathlib import Path


def sync_folder(folder: Path) -> None:
    """Waits until the names in `folder` are on the disk.

    Raises:
        OSError: the folder cannot be opened, or not be written.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
