# Sourced by all scripts in this folder: parses options, writes requests and finds the daemon.
# It finds the daemon as described in clients/README.md, and leaves the script's own arguments in "$@".
set -eu

agent=
request=
deadline=

usage() {
    sed -n -e '1d' -e '/^# /!q' -e 's/^# //p' "$0"
    echo
    echo "  -a, --agent ID          ID of the agent; default: main, or the default agent"
    echo "  -j, --json REQUEST      complete request as JSON instead of arguments; @ reads it from standard input"
    echo "  -t, --timeout SECONDS   deadline of the call, instead of its default deadline"
    echo "  --                      passes all following arguments to grpcurl, for example: -- -v -emit-defaults"
    echo
    echo "MEMORYD_ADDRESS, MEMORYD_TOKEN_FILE, MEMORYD_TLS, MEMORYD_TLS_CA, MEMORYD_TLS_CERT, MEMORYD_TLS_KEY,"
    echo "MEMORYD_TLS_SERVER_NAME and MEMORYD_STATE_DIR select the daemon, the token and TLS. GRPCURL is the grpcurl command to use."
}

refuse() {
    echo "$(basename "$0"): $*" >&2
    exit 2
}

## Writing a request

# text STRING: print the string as JSON.
text() {
    tab=$(printf '\t') return=$(printf '\r')
    printf '%s' "$1" | sed -e 's/[\\"]/\\&/g' -e "s/$tab/\\\\t/g" -e "s/$return/\\\\r/g" \
        | awk 'BEGIN { printf "\"" } NR > 1 { printf "\\n" } { printf "%s", $0 } END { printf "\"" }'
}

# texts STRING...: print the strings as a JSON list.
texts() {
    between=
    printf '['
    for each in "$@"; do
        printf '%s' "$between"
        text "$each"
        between=,
    done
    printf ']'
}

# fields NAME VALUE...: print a JSON object with the agent and with the names whose value (JSON) is not empty.
fields() {
    test -z "$agent" || set -- agent_id "$(text "$agent")" "$@"
    between=
    printf '{'
    while [ $# -gt 0 ]; do
        test -z "$2" || { printf '%s"%s": %s' "$between" "$1" "$2" && between=', '; }
        shift 2
    done
    printf '}'
}

# optional STRING: print the string as JSON, or nothing if it is empty.
optional() {
    test -z "$1" || text "$1"
}

## Finding the daemon

# expand PATH [HOME]: print the path with a leading "~" replaced by the home directory.
expand() {
    case $1 in
        "~") printf '%s' "${2-$HOME}" ;;
        "~/"*) printf '%s/%s' "${2-$HOME}" "${1#"~/"}" ;;
        *) printf '%s' "$1" ;;
    esac
}

# variable NAME: print the value of the variable, without surrounding blanks.
variable() {
    eval "printf '%s' \"\${$1-}\"" | sed -e 's/^[[:space:]]*//' -e 's/[[:space:]]*$//'
}

state_dir() {
    named=$(variable MEMORYD_STATE_DIR)
    test -z "$named" || { expand "$named" && return; }
    openclaw_home=$(openclaw_path OPENCLAW_HOME "$HOME")
    openclaw_home=${openclaw_home:-$HOME}
    named=$(openclaw_path OPENCLAW_STATE_DIR "$openclaw_home")
    test -z "$named" || { printf '%s' "$named" && return; }
    for folder in .openclaw .clawdbot .moltbot; do
        test ! -e "$openclaw_home/$folder" || { printf '%s' "$openclaw_home/$folder" && return; }
    done
    printf '%s' "$openclaw_home/.openclaw"
}

# openclaw_path NAME HOME: print the path in a variable of OpenClaw, or nothing if the variable counts as not set.
openclaw_path() {
    path=$(variable "$1")
    case $path in
        "" | undefined | null) ;;
        *) expand "$path" "$2" ;;
    esac
}

# noted_address FILE: print the first address in the endpoint file whose socket exists or that is not a socket.
noted_address() {
    test -r "$1" || return 0
    sed -n 's/.*"addresses": \["\(.*\)"\], "pid".*/\1/p' "$1" \
        | awk '{ count = split($0, found, "\", \""); for (i = 1; i <= count; i++) print found[i] }' \
        | while IFS= read -r noted; do
            case $noted in
                unix:*) test -S "${noted#unix:}" || continue ;;
            esac
            printf '%s' "$noted"
            break
        done
}

find_address() {
    found=$(variable MEMORYD_ADDRESS)
    test -n "$found" || found=$(noted_address "$(state_dir)/memoryd.endpoint.json")
    if [ -z "$found" ]; then
        case $(variable XDG_RUNTIME_DIR) in
            /*) found=unix:$(variable XDG_RUNTIME_DIR)/memoryd/memoryd.sock ;;
            *) found=unix:$(state_dir)/run/memoryd.sock ;;
        esac
    fi
    printf '%s' "$found"
}

# first_token FILE: print the first line that is neither blank nor a comment.
first_token() {
    sed -e 's/^[[:space:]]*//' -e 's/[[:space:]]*$//' -e '/^#/d' -e '/^$/d' "$1" | head -n 1
}

on_loopback() {
    case $1 in
        localhost:* | 127.*:* | "[::1]:"*) return 0 ;;
        *) return 1 ;;
    esac
}

# find_token ADDRESS: print the token for the address, if there is one.
find_token() {
    named=$(variable MEMORYD_TOKEN_FILE)
    if [ -n "$named" ]; then
        named=$(expand "$named")
        test -r "$named" || refuse "cannot read the token file $named"
        named_token=$(first_token "$named")
        test -n "$named_token" || refuse "the token file $named contains no token"
        printf '%s' "$named_token"
    elif on_loopback "$1" && [ -e "$(state_dir)/memoryd.token" ]; then
        test -r "$(state_dir)/memoryd.token" || refuse "cannot read the token file $(state_dir)/memoryd.token"
        first_token "$(state_dir)/memoryd.token"
    fi
}

find_grpcurl() {
    own=$(dirname "$(readlink -f "$0")")/../../.tools/bin/grpcurl
    if [ -n "${GRPCURL-}" ]; then
        printf '%s' "$GRPCURL"
    elif command -v grpcurl >/dev/null; then
        printf grpcurl
    elif [ -x "$own" ]; then
        printf '%s' "$own"
    else
        refuse "grpcurl is not installed; run \`make grpcurl\`, or see https://github.com/fullstorydev/grpcurl"
    fi
}

# flag NAME: print yes or no for a boolean variable, or nothing if it is blank or not set.
flag() {
    case $(variable "$1" | tr '[:upper:]' '[:lower:]') in
        "") ;;
        1 | true | yes | on) printf yes ;;
        0 | false | no | off) printf no ;;
        *) refuse "$1 is \"$(variable "$1")\"; write 1 for yes or 0 for no" ;;
    esac
}

# named_file NAME: print the path of the file in a variable.
named_file() {
    named=$(expand "$(variable "$1")")
    test -z "$named" || [ -r "$named" ] || refuse "cannot read $named (the value of $1)"
    printf '%s' "$named"
}

## Calling

# grpcurl_there FLAGS... -- ARGUMENTS...: run grpcurl with the address between its flags and its arguments.
grpcurl_there() {
    # The arguments after "--"; each word was quoted for eval.
    eval "set -- $more \"\$@\""
    address=$(find_address)
    command=$(find_grpcurl)
    case $address in
        unix:*)
            socket=${address#unix:}
            socket=$(expand "${socket#//}")
            _run "$command" "unix:$socket" -plaintext "$@"
            ;;
    esac
    token=$(find_token "$address")
    secured=$(flag MEMORYD_TLS)
    ca='' certificate='' key=''
    if [ "$secured" != no ]; then
        ca=$(named_file MEMORYD_TLS_CA)
        certificate=$(named_file MEMORYD_TLS_CERT)
        key=$(named_file MEMORYD_TLS_KEY)
    fi
    if [ "$secured" != no ] && [ -n "$secured$ca$certificate$key" ]; then
        name=$(variable MEMORYD_TLS_SERVER_NAME)
        test -z "$name" || set -- -authority "$name" "$@"
        test -z "$certificate" || set -- -cert "$certificate" "$@"
        test -z "$key" || set -- -key "$key" "$@"
        test -z "$ca" || set -- -cacert "$ca" "$@"
    elif [ -n "$token" ] && ! on_loopback "$address"; then
        refuse "refusing to send the token to $address in the clear; use TLS: set MEMORYD_TLS=1, or MEMORYD_TLS_CA to a CA file"
    else
        set -- -plaintext "$@"
    fi
    if [ -n "$token" ]; then
        # grpcurl expands the variable, so that the token is not visible in the list of processes.
        MEMORYD_SHOWN_TOKEN=$token
        export MEMORYD_SHOWN_TOKEN
        # shellcheck disable=SC2016
        set -- -expand-headers -H 'authorization: Bearer ${MEMORYD_SHOWN_TOKEN}' "$@"
    fi
    _run "$command" "$address" "$@"
}

# _run COMMAND ADDRESS FLAGS... -- ARGUMENTS...: run the command with the address in place of "--".
_run() {
    command=$1 there=$2
    shift 2
    left=$#
    while [ "$left" -gt 0 ]; do
        each=$1
        shift
        if [ "$each" = -- ]; then
            set -- "$@" "$there"
        else
            set -- "$@" "$each"
        fi
        left=$((left - 1))
    done
    exec "$command" "$@"
}

# call METHOD SECONDS REQUEST: call the method; SECONDS is its default deadline, or 0 for none.
call() {
    seconds=${deadline:-$2}
    set -- -d "${request:-$3}" -- "$1"
    test "$seconds" = 0 || set -- -max-time "$seconds" "$@"
    grpcurl_there "$@"
}

# needs COUNT GIVEN: print the usage and exit unless COUNT arguments or a complete request were given.
needs() {
    if [ -z "$request" ] && [ "$2" -lt "$1" ]; then
        usage >&2
        exit 2
    fi
}

# quoted STRING: print the string quoted for eval.
quoted() {
    printf "'%s' " "$(printf '%s' "$1" | sed "s/'/'\\\\''/g")"
}

## The options, before, between or after the arguments

more=
arguments=
while [ $# -gt 0 ]; do
    case $1 in
        -h | --help) usage && exit ;;
        -a | --agent | -j | --json | -t | --timeout)
            test $# -gt 1 || refuse "$1 needs a value"
            case $1 in
                -a | --agent) agent=$2 ;;
                -j | --json) request=$2 ;;
                *) deadline=$2 ;;
            esac
            shift 2
            ;;
        --)
            shift
            for each in "$@"; do more="$more$(quoted "$each")"; done
            break
            ;;
        --*) refuse "unknown option $1; see --help" ;;
        *)
            arguments="$arguments$(quoted "$1")"
            shift
            ;;
    esac
done
eval "set -- $arguments"
