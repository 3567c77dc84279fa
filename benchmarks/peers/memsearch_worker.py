"""Answer searches with memsearch's Python API: one JSON line in, one JSON line out. Runs in the tool's environment.

The only argument is a JSON object with the arguments of `MemSearch`.
"""

import asyncio
import json
import os
import sys

from memsearch import MemSearch


async def main() -> None:
    # Only answers may go to the first stdout; what libraries print goes to stderr.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    memory = MemSearch(**json.loads(sys.argv[1]))
    print("{}", file=answers, flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        request = json.loads(line)
        try:
            answer = {"results": await memory.search(request["text"], top_k=request["limit"])}
        except Exception as error:  # noqa: BLE001 -- the client reports it
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)
    memory.close()


if __name__ == "__main__":
    asyncio.run(main())
