#!/bin/sh
# flush-decision.sh TOTAL_TOKENS [CONTEXT_WINDOW_TOKENS]: decide whether to write notes before compaction
. "$(dirname "$(readlink -f "$0")")/prelude.sh"
needs 1 $#
call memoryd.v1.MemoryService/FlushDecision 1 "$(fields total_tokens "${1-}" context_window_tokens "${2-}")"
