import pytest

from rpc.wire import Home, quiet, start


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path)


@pytest.fixture
async def serve(home):
    """Starts daemons and stops them after the test. Without `background` nothing happens that no call asks for."""
    started = []

    async def serve(settings=None, *, background=False, at=home, **flags):
        running = await start(at, settings if background else quiet(settings), background=background, **flags)
        started.append(running)
        return running

    yield serve
    for running in started:
        await running.stop()
