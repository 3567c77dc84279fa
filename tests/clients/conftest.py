"""What the tests of all clients share: the daemons and the runners."""

from contextlib import contextmanager

import pytest

from clients.ground import Ground
from clients.runner import Runner
from serving import environment


@pytest.fixture(scope="module")
def grounds(tmp_path_factory):
    """A daemon that speaks TLS, a `plain` one, and a `mutual` one, each started when it is first asked for."""
    made = {}

    def ground(**kind):
        name = str(sorted(kind.items()))
        if name not in made:
            made[name] = Ground(tmp_path_factory.mktemp("g"), **kind).start()
        return made[name]

    yield ground
    for each in made.values():
        each.stop()


@pytest.fixture(scope="module")
def runners(request, tmp_path_factory):
    """The runner of a language, or one of its own for those who give it an environment; one that failed is replaced."""
    language, kept = request.param.or_skip(), []

    @contextmanager
    def runner(given=None):
        if given is not None or not kept:
            folder = tmp_path_factory.mktemp("r")
            made = Runner(language.command, environment(folder) | (given or {}), folder / "log")
            (kept if given is None else []).append(made)
        else:
            made = kept[0]
        try:
            yield made
        except BaseException:
            made.kill()
            kept[:] = [each for each in kept if each is not made]
            raise
        if given is not None:
            made.close()

    yield runner
    for each in kept:
        each.close()
