"""Run a daemon under a mix of all calls while everything around it fails: `make soak`.

The clients append, search, read, list, forget, sync, watch and cancel; editors save and rename files; the embedding
provider fails in every known way; settings are reloaded, valid and invalid. In the first half, the daemon is killed or
stopped every few seconds and started again on the same state directory. In the second half, one daemon runs, and its
memory, descriptors, threads and state directory are compared at quiet points. At each quiet point, everything that was
acknowledged must be there once and be found, and nothing else.

The exit status is 0 if there was no violation. `--seed` repeats the choices of a run, but not its timing.
"""

import argparse
import asyncio
import importlib.util
import os
import random
import sys
import tempfile
from pathlib import Path

from soak.run import Soak


def main():
    parser = argparse.ArgumentParser(
        prog="python -m soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=300.0, help="the duration; 30 is the shortest useful one")
    parser.add_argument("--seed", type=int, default=None, help="the seed of the choices; by default a new one")
    parser.add_argument("--json", type=Path, help="write the summary to this file")
    parser.add_argument("--folder", type=Path, help="keep the workspace, the state and the log in this new folder")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    for name in [name for name in os.environ if name.endswith(("_API_KEY", "_API_KEYS"))]:
        del os.environ[name]
    entries = importlib.util.find_spec("lancedb") is not None
    # A socket's path may be only about a hundred bytes long.
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="soak-", ignore_cleanup_errors=True) as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        soak = Soak(folder, seed, options.seconds, entries=entries)
        sys.exit(0 if asyncio.run(soak.run(options.json)) else 1)


main()
