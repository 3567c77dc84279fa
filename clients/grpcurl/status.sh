#!/bin/sh
# status.sh [probe]: show the status of the daemon and an agent; "probe" also calls the embedding provider
. "$(dirname "$(readlink -f "$0")")/prelude.sh"
case ${1-} in
    probe) call memoryd.v1.MemoryService/Status 10 "$(fields probe true)" ;;
    "") call memoryd.v1.MemoryService/Status 2 "$(fields)" ;;
    *) refuse "the argument is $1; it must be probe or missing" ;;
esac
