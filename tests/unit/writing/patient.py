"""An appender for tests and their processes that waits for locks on its own thread."""

import time

from memoryd_server.errors import FileBusy
from memoryd_server.sources.roots import Roots
from memoryd_server.writing.append import Appender, AppendJob


class PatientAppender:
    """Appends as the daemon does, for one call: again while another process holds a lock."""

    def __init__(self, workspace, ledger):
        self._appender = Appender(Roots(str(workspace), ()), str(ledger))
        self.recover, self.issues = self._appender.recover, self._appender.issues
        self.release_memory = self._appender.release_memory

    def append(self, text, **request):
        job, until = AppendJob(text, **request), time.monotonic() + 60
        while True:
            try:
                return self._appender.append(job)
            except FileBusy:
                if time.monotonic() > until:
                    raise
                time.sleep(0.001)
