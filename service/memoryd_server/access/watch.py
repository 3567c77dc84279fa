"""Tokens and certificates of a running daemon, kept in line with their files."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from memoryd_server.access.certificates import Certificates
from memoryd_server.access.grant import Grant
from memoryd_server.access.keyring import Keyring
from memoryd_server.faults import Faults, repeat

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

    def __init__(
        self, keyring: Keyring, certificates: Certificates | None, *, look_seconds: float | None = None
    ) -> None:
        self.certificates = certificates
        self._keyring = keyring
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="access")
        self._look_seconds = LOOK_SECONDS if look_seconds is None else look_seconds
        self._tasks: list[asyncio.Task[None]] = []
        self._look: _Look | None = None

    def start(self) -> None:
        """Look at the files at intervals until `stop`."""
        self._look_at_intervals(self.refresh_tokens, "the check of the token files")
        if self.certificates is not None:
            self._look_at_intervals(
                partial(self._on_thread, self.certificates.current), "the check of the certificates"
            )

    def _look_at_intervals(self, look: Callable[[], Awaitable[object]], name: str) -> None:
        seconds = self._look_seconds
        looks = repeat(look, Faults(name), interval_seconds=seconds, delay_seconds=seconds)
        self._tasks.append(asyncio.get_running_loop().create_task(looks))

    async def _on_thread(self, work: Callable[[], object]) -> object:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def stop(self) -> None:
        """End the looks and their thread."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
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
