#!/bin/sh
# list-agents.sh [PAGE_SIZE [PAGE_TOKEN]]: list the agents that the caller is allowed to use
. "$(dirname "$(readlink -f "$0")")/prelude.sh"
test -z "$agent" || refuse "--agent cannot be used with list-agents"
call memoryd.v1.MemoryService/ListAgents 2 "$(fields page_size "${1-}" page_token "$(optional "${2-}")")"
