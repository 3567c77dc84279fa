"""End the process with status 1 and a message on Windows, when this module is imported.

`memoryd_server.cli` imports it before everything else, so that the user sees this message and not a failed import.
"""

import sys

if sys.platform == "win32":
    sys.exit(
        "memoryd does not support Windows, because it needs Unix sockets, POSIX file permissions and flock; "
        "run it in WSL 2 or in a Linux container."
    )
