"""Daemons that use one database, each with a state directory of its own."""

from pathlib import Path

from daemon_process import end


class ReplicaFixture:
    """The replicas of a database, numbered from 0. `admin` connects to it as the superuser; `url` is its URL."""

    def __init__(self, daemons, url, admin, *, search=None, **settings):
        self.url = url
        self.served = []
        self._admin = admin
        self._daemons = daemons
        found = {"sources": ["memory", "sessions"], "experimental": {"sessionMemory": True}, **(search or {})}
        daemons.configure(search=found, writes="edit", store={"url": url}, **settings)

    def start(self, count, within=()):
        """Start further replicas, and return the addresses of all."""
        for _ in range(count):
            state = self._state(len(self.served))
            state.mkdir()
            self.served.append(self._daemons.start(within, state=state))
        return self.addresses

    @property
    def addresses(self):
        return [served.address for served in self.served]

    def start_again(self, number):
        """Start a replica that has ended."""
        self.served[number] = self._daemons.start(state=self._state(number))

    def _state(self, number) -> Path:
        return self._daemons.home / f"state{number}"

    def stop(self):
        """Stop all replicas."""
        assert [end(served.process) for served in self.served] == [0] * len(self.served)

    def rows(self, query, *values):
        """Return the rows of a query of the superuser, who sees all agents."""
        with self._admin() as connection:
            connection.execute("SET search_path = memoryd, public")
            return connection.execute(query, values).fetchall()
