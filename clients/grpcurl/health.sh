#!/bin/sh
# health.sh [SERVICE]: check whether the daemon, or one of its services, is serving
. "$(dirname "$(readlink -f "$0")")/prelude.sh"
call grpc.health.v1.Health/Check 5 "$(fields service "$(optional "${1-}")")"
