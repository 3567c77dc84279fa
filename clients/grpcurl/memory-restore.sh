#!/bin/sh
# memory-restore.sh VERSION_ID SHA256 [PATH]: restore the content before a write
# SHA256 is content_sha256 of memory-get.sh, "" if there is no file. PATH is needed if the file was moved.
. "$(dirname "$(readlink -f "$0")")/prelude.sh"
needs 2 $#
call memoryd.v1.MemoryService/MemoryRestore 5 "$(fields version_id "$(text "${1-}")" \
    expected_sha256 "$(optional "${2-}")" path "$(optional "${3-}")")"
