#!/bin/sh
# status.sh [probe]: tells how an agent's memory is doing; with "probe" the embedding provider is called, too
. "$(dirname "$(readlink -f "$0")")/prelude.sh"
case ${1-} in
    probe) call memoryd.v1.MemoryService/Status 10 "$(fields probe true)" ;;
    "") call memoryd.v1.MemoryService/Status 2 "$(fields)" ;;
    *) refuse "$1 is neither nothing nor probe" ;;
esac
