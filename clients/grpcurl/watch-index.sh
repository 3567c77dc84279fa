#!/bin/sh
# watch-index.sh: show the state of an agent's index and each change, until Ctrl-C
. "$(dirname "$(readlink -f "$0")")/prelude.sh"
call memoryd.v1.MemoryService/WatchIndex 0 "$(fields)"
