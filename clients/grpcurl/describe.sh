#!/bin/sh
# describe.sh [SYMBOL]: list the services, or describe a service, a message or an enum, by reflection
. "$(dirname "$(readlink -f "$0")")/prelude.sh"
if [ $# -eq 0 ]; then
    grpcurl_there -- list
fi
grpcurl_there -- describe "$1"
