"""Makes the fake an executable of a test's own, and finds the real one."""

import json
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).parents[1]
TOOLS = TESTS.parent / ".tools" / "qmd"
MODELS = ("embed", "generate", "rerank")


@dataclass
class FakeQmd:
    """A fake at `path`. It does what `faults` says from its next start on."""

    path: Path

    def faults(self, **faults):
        """Faults by verb; none for a fake that does everything right."""
        fresh = self.path.with_name("faults.fresh")
        fresh.write_text(json.dumps(faults))
        fresh.replace(self.path.with_name("faults.json"))

    def calls(self, verb=""):
        """The verbs it was called with so far."""
        file = self.path.with_name("calls")
        lines = file.read_text().splitlines() if file.exists() else []
        return [name for name, _ in map(str.split, lines) if verb in ("", name)]

    def hanging(self):
        """The processes that hang: each with its child."""
        file = self.path.with_name("hanging")
        return [int(pid) for line in file.read_text().splitlines() for pid in line.split()] if file.exists() else []

    def remove(self):
        self.path.rename(self.path.with_suffix(".away"))

    def put_back(self):
        self.path.with_suffix(".away").rename(self.path)


def make_fake(folder):
    """A fake in a folder of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "qmd"
    path.write_text(
        f"#!{sys.executable} -S\nimport sys\nsys.path[:0] = {[str(TESTS), *_libraries()]!r}\n"
        "from fake_qmd.command import main\nmain()\n"
    )
    path.chmod(0o755)
    return FakeQmd(path)


def _libraries():
    # -S leaves out site-packages with everything that they start; YAML alone is needed.
    import yaml  # noqa: PLC0415 -- only its place is asked for

    return [str(Path(yaml.__file__).parents[1])]


def real_qmd():
    """The real command, or None: MEMORYD_TEST_QMD names one, else `make qmd` has installed it."""
    named = os.environ.get("MEMORYD_TEST_QMD")
    if named:
        return Path(shutil.which(named) or named)
    return TOOLS / "qmd" if (TOOLS / "qmd").exists() else None


def tiny_models():
    """The variables that name the tiny models for the real command, or None where they were not made."""
    files = {f"QMD_{kind.upper()}_MODEL": TOOLS / "models" / f"tiny-{kind}.gguf" for kind in MODELS}
    return {name: str(file) for name, file in files.items()} if all(f.is_file() for f in files.values()) else None
