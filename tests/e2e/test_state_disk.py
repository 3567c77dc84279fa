"""A daemon whose state directory cannot be written starts, answers, says so, and ends in order."""

import pytest

from daemon_process import memoryd, serving
from disks import unwritable


@pytest.mark.slow
def test_a_daemon_serves_a_read_only_state_directory(tmp_path):
    workspace, state, socket = tmp_path / "workspace", tmp_path / "state", f"unix:{tmp_path}/m.sock"
    (workspace / "memory").mkdir(parents=True)
    state.mkdir()
    note = workspace / "memory" / "a.md"
    note.write_text("the heron stands in the reeds")
    with serving(workspace, state, home=tmp_path, listen=socket) as served:
        assert served.memoryd("index").returncode == 0
    with unwritable(state), serving(workspace, state, home=tmp_path, listen=socket) as served:
        found = memoryd("search", "heron", "--address", served.address, home=tmp_path)
        assert (found.returncode, "memory/a.md" in found.stdout) == (0, True)
        refused = memoryd("index", "--address", served.address, home=tmp_path)
        assert (refused.returncode, "STATE_READ_ONLY" in refused.stderr) == (6, True)
        flags = ("--address", served.address, "--state-dir", state, "--workspace", workspace)
        checked = memoryd("doctor", *flags, home=tmp_path)
        assert "nothing new is indexed" in checked.stdout
        assert (tmp_path / "daemon.log").read_text().count("skip-endpoint-note") == 1
    assert served.process.returncode == 0
    note.write_text("a kestrel hovers")
    with serving(workspace, state, home=tmp_path, listen=socket) as served:
        assert served.memoryd("index").returncode == 0
        assert "memory/a.md" in served.memoryd("search", "kestrel").stdout
