"""`.memoryignore` written beside a running daemon: what it names vanishes from the answers, and comes back."""

from e2e.town import client, eventually, paths


def found(connection):
    return sorted(paths(connection, "heron"))


def test_rules_hold_soon_after_they_are_written(town):
    town.configure(reconcile_seconds=1)
    everything = ["memory/a.md", "memory/node_modules/p/README.md", "memory/private/b.md"]
    for path in everything:
        town.write(path, f"the heron of {path}\n")
    with client(town.start()) as connection:
        eventually(lambda: found(connection) == everything)
        town.write(".memoryignore", "# nobody's business\nprivate/\nnode_modules/\n")
        eventually(lambda: found(connection) == ["memory/a.md"])
        assert [file.path for file in connection.list_files().files] == ["memory/a.md"]
        town.write("memory/private/c.md", "another heron\n")
        town.write("memory/d.md", "the last heron\n")
        eventually(lambda: found(connection) == ["memory/a.md", "memory/d.md"])
        # The rules are gone: so is the silence about what they left out, also about what was written meanwhile.
        (town.workspace / ".memoryignore").unlink()
        everything = sorted([*everything, "memory/private/c.md", "memory/d.md"])
        eventually(lambda: found(connection) == everything)
        town.write("memory/private/b.md", "a kestrel instead\n")
        eventually(lambda: paths(connection, "kestrel") == ["memory/private/b.md"])
    assert (town.workspace / "memory/private/c.md").exists()
