"""A write that the system refuses leaves nothing, and its retry is not mistaken for an equal text from before."""

import resource
import signal

import pytest

from e2e.daemon_fixture import client
from memoryd.client import MemorydError

pytestmark = pytest.mark.faults

LOG = "memory/log.md"
TEXT = "- ok"


@pytest.mark.slow
@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("earlier", [0, 1, 2])
def test_a_refused_append_is_written_by_its_retry_among_equal_texts(daemons, earlier, restart):
    daemons.configure(watch=False)
    # Larger than the ledger, so that the limit on file sizes stops only the write of the text.
    before = "# Log\n" + "a line of the user\n" * 10_000 + f"{TEXT}\n" * earlier
    log = daemons.write(LOG, before)
    served = daemons.start()
    unlimited = resource.prlimit(served.process.pid, resource.RLIMIT_FSIZE)
    with client(served) as connection:
        resource.prlimit(served.process.pid, resource.RLIMIT_FSIZE, (len(before) + 2, unlimited[1]))
        with pytest.raises(MemorydError, match="RLIMIT_FSIZE") as refused:
            connection.append(text=TEXT, path=LOG, idempotency_key="k")
        assert refused.value.reason == "DISK_FULL"
        resource.prlimit(served.process.pid, resource.RLIMIT_FSIZE, unlimited)
    assert log.read_text() == before
    # As long as the text: an equal text moves to where the refused one would be.
    edited = "- no\n" + before
    beside = log.with_name("beside.tmp")
    beside.write_text(edited)
    beside.rename(log)
    if restart:
        served.process.send_signal(signal.SIGKILL)
        served.process.wait(30)
        served = daemons.start()
    with client(served) as connection:
        assert not connection.append(text=TEXT, path=LOG, idempotency_key="k").already_appended
        assert connection.append(text=TEXT, path=LOG, idempotency_key="k").already_appended
    assert log.read_text() == f"{edited}{TEXT}\n"
