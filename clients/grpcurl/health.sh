#!/bin/sh
# health.sh [SERVICE]: tells whether the daemon serves, or one of its services
. "$(dirname "$(readlink -f "$0")")/prelude.sh"
call grpc.health.v1.Health/Check 5 "$(fields service "$(optional "${1-}")")"
