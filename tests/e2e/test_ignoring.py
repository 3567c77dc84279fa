"""`.memoryignore` written while a daemon runs: matching files vanish from the answers, and come back."""

from e2e.daemon_fixture import client, paths
from waiting import wait_until


def found(connection):
    return sorted(paths(connection, "heron"))


def test_rules_hold_soon_after_they_are_written(daemons):
    daemons.configure(reconcile_seconds=1)
    everything = ["memory/a.md", "memory/node_modules/p/README.md", "memory/private/b.md"]
    for path in everything:
        daemons.write(path, f"the heron of {path}\n")
    with client(daemons.start()) as connection:
        wait_until(lambda: found(connection) == everything)
        daemons.write(".memoryignore", "# nobody's business\nprivate/\nnode_modules/\n")
        wait_until(lambda: found(connection) == ["memory/a.md"])
        assert [file.path for file in connection.list_files().files] == ["memory/a.md"]
        daemons.write("memory/private/c.md", "another heron\n")
        daemons.write("memory/d.md", "the last heron\n")
        wait_until(lambda: found(connection) == ["memory/a.md", "memory/d.md"])
        # The rules are gone: so is the silence about what they left out, also about what was written meanwhile.
        (daemons.workspace / ".memoryignore").unlink()
        everything = sorted([*everything, "memory/private/c.md", "memory/d.md"])
        wait_until(lambda: found(connection) == everything)
        daemons.write("memory/private/b.md", "a kestrel instead\n")
        wait_until(lambda: paths(connection, "kestrel") == ["memory/private/b.md"])
    assert (daemons.workspace / "memory/private/c.md").exists()
