#!/bin/sh
# list-agents.sh [PAGE_SIZE [PAGE_TOKEN]]: lists the agents that the caller may use
. "$(dirname "$(readlink -f "$0")")/prelude.sh"
test -z "$agent" || refuse "--agent is not for a list of agents"
call memoryd.v1.MemoryService/ListAgents 2 "$(fields page_size "${1-}" page_token "$(optional "${2-}")")"
