#!/bin/sh
# sync.sh [full | dry-run]: update the index and show each event; "full" rebuilds it, after a run in progress
. "$(dirname "$(readlink -f "$0")")/prelude.sh"
case ${1-} in
    full) call memoryd.v1.MemoryService/Sync 0 "$(fields mode "$(text SYNC_MODE_FULL)" on_conflict "$(text ON_CONFLICT_WAIT)")" ;;
    dry-run) call memoryd.v1.MemoryService/Sync 0 "$(fields dry_run true)" ;;
    "") call memoryd.v1.MemoryService/Sync 0 "$(fields)" ;;
    *) refuse "the argument is $1; it must be full, dry-run or missing" ;;
esac
