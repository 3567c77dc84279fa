#!/bin/sh
# recall-block.sh PROMPT: recalls what concerns a prompt, as a block to put before it
. "$(dirname "$(readlink -f "$0")")/prelude.sh"
needs 1 $#
call memoryd.v1.EntryService/RecallBlock 5 "$(fields prompt "$(text "${1-}")")"
