"""The thread that reads inotify events, ended by whatever keeps it from reading them.

watchdog's own goes on for ever, busily and blindly, when its descriptor is closed behind its back; and when it dies of
an error, it keeps its descriptors. A thread that has ended can be noticed and replaced.
"""

import os
import threading
from contextlib import suppress

from watchdog.observers.inotify_c import InotifyFD


class InotifyThread(InotifyFD):
    """Reads events until it is stopped, or until its descriptor is no longer that of an inotify instance.

    Raises:
        OSError: no instance is to be had (EMFILE).
    """

    def __init__(self) -> None:
        super().__init__()
        self._inode = os.fstat(self._inotify_fd)
        self._release_lock = threading.Lock()
        self._released = False

    def is_reading(self) -> bool:
        """Whether events still arrive."""
        return self.is_alive() and self._owns_descriptor()

    def run(self) -> None:
        """Reads events, and frees what is held when the reading ends by itself."""
        try:
            while self.should_keep_running() and self._owns_descriptor():
                for event in self.read_events():
                    self.handle_event(event)
        except OSError:
            # Whoever asks `is_reading` learns of it; there is nobody to tell on this thread.
            return
        finally:
            with self._lock:
                self._closed = True
            self.release()

    def close(self) -> None:
        """Takes the watches away and wakes the thread; watches of a lost descriptor are gone already."""
        if self._owns_descriptor():
            super().close()
            return
        with self._lock:
            if not self._closed:
                self._closed = True
                os.write(self._kill_w, b"!")

    def release(self) -> None:
        """Closes the descriptors, once."""
        with self._release_lock:
            if self._released:
                return
            self._released = True
        if self._is_ours():
            os.close(self._inotify_fd)
        for descriptor in (self._kill_r, self._kill_w):
            with suppress(OSError):
                os.close(descriptor)

    def _close_resources(self) -> None:
        self.release()

    def _check_inotify_fd(self) -> bool:
        # The wait may have been for a descriptor that was closed meanwhile, and that another file has by now.
        return super()._check_inotify_fd() and self._owns_descriptor()

    def _owns_descriptor(self) -> bool:
        return not self._released and self._is_ours()

    def _is_ours(self) -> bool:
        """Whether the number of our descriptor is still an inotify instance and not some other file of this process."""
        try:
            now = os.fstat(self._inotify_fd)
        except OSError:
            return False
        return (now.st_dev, now.st_ino) == (self._inode.st_dev, self._inode.st_ino)
