#!/bin/sh
# recall-block.sh PROMPT: print the entries that are relevant to a prompt, as a text to insert before it
. "$(dirname "$(readlink -f "$0")")/prelude.sh"
needs 1 $#
call memoryd.v1.EntryService/RecallBlock 5 "$(fields prompt "$(text "${1-}")")"
