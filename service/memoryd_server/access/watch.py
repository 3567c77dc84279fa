"""Tokens and certificates of a running daemon, kept in line with their files."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from memoryd_server.access.certificates import Certificates
from memoryd_server.access.grant import Grant
from memoryd_server.access.keyring import Keyring

# Each call on TCP looks at the tokens by itself, and each handshake at the certificates. This look is for the log and
# for Status, when nobody calls.
LOOK_SECONDS = 5.0


class _Look:
    """One reading of the tokens' files, which callers share until it has begun; later callers need another one."""

    end: asyncio.Future[None]

    def __init__(self, refresh: Callable[[], None]) -> None:
        self._refresh = refresh
        self.has_begun = False

    def run(self) -> None:
        """Read the files, on the thread for that."""
        self.has_begun = True
        self._refresh()


class AccessFiles:
    """The keyring and, where there is TLS, the certificates. No file is touched on the event loop's thread."""

    def __init__(self, keyring: Keyring, certificates: Certificates | None) -> None:
        self.certificates = certificates
        self._keyring = keyring
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="access")
        self._task: asyncio.Task[None] | None = None
        self._look: _Look | None = None

    def start(self) -> None:
        """Looks at the files at intervals until `stop`."""
        self._task = asyncio.get_running_loop().create_task(self._repeat())

    async def _repeat(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self.refresh_tokens()
            if self.certificates is not None:
                await asyncio.get_running_loop().run_in_executor(self._thread, self.certificates.current)

    async def stop(self) -> None:
        """Ends the looking and its thread."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def refresh_tokens(self) -> None:
        """Return when the tokens are those that their files hold now.

        Callers that wait for a look that has not begun share it, so that a flood of calls does not queue up.
        """
        look = self._look
        if look is None or look.has_begun:
            look = self._look = _Look(self._keyring.refresh)
            look.end = asyncio.get_running_loop().run_in_executor(self._thread, look.run)
        await asyncio.shield(look.end)

    def grant(self, token: bytes) -> Grant | None:
        """What a token opens, as the files were last read; None where it is not one of ours."""
        return self._keyring.grant(token)

    def problems(self) -> tuple[str, ...]:
        """What of the files is not used, and why; for whoever runs the daemon."""
        found = (self._keyring.problem, "" if self.certificates is None else self.certificates.problem)
        return tuple(problem for problem in found if problem)
