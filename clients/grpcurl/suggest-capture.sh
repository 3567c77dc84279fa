#!/bin/sh
# suggest-capture.sh MESSAGE...: show which messages of a turn are worth storing; stores nothing
. "$(dirname "$(readlink -f "$0")")/prelude.sh"
needs 1 $#
call memoryd.v1.EntryService/SuggestCapture 1 "$(fields user_messages "$(texts "$@")")"
