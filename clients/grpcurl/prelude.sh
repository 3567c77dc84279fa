# Read by each script here, for what they share: their options, how a request is written, and where the daemon is.
# It looks for the daemon in the places that clients/README.md names, and leaves the script's own arguments in "$@".
set -eu

agent=
request=
deadline=

usage() {
    sed -n -e '1d' -e '/^# /!q' -e 's/^# //p' "$0"
    echo
    echo "  -a, --agent ID          the agent; main when it is not given"
    echo "  -j, --json REQUEST      the whole request as JSON instead of arguments; @ reads it from standard input"
    echo "  -t, --timeout SECONDS   another deadline than the documented one"
    echo "  --                      what follows goes to grpcurl as it is, for example: -- -v -emit-defaults"
    echo
    echo "MEMORYD_ADDRESS, MEMORYD_TOKEN_FILE, MEMORYD_TLS, MEMORYD_TLS_CA, MEMORYD_TLS_CERT, MEMORYD_TLS_KEY,"
    echo "MEMORYD_TLS_SERVER_NAME and MEMORYD_STATE_DIR say where the daemon is and what it asks for; GRPCURL names another grpcurl."
}

refuse() {
    echo "$(basename "$0"): $*" >&2
    exit 2
}

## Writing a request

# text STRING: as JSON.
text() {
    tab=$(printf '\t') return=$(printf '\r')
    printf '%s' "$1" | sed -e 's/[\\"]/\\&/g' -e "s/$tab/\\\\t/g" -e "s/$return/\\\\r/g" \
        | awk 'BEGIN { printf "\"" } NR > 1 { printf "\\n" } { printf "%s", $0 } END { printf "\"" }'
}

# texts STRING...: as a JSON list.
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

# fields NAME VALUE...: a JSON object of the names whose value, JSON as well, is not empty; and of the agent.
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

# optional STRING: as JSON; empty stays empty.
optional() {
    test -z "$1" || text "$1"
}

## Finding the daemon

# expand PATH: with the home directory for a leading "~".
expand() {
    case $1 in
        "~") printf '%s' "$HOME" ;;
        "~/"*) printf '%s/%s' "$HOME" "${1#"~/"}" ;;
        *) printf '%s' "$1" ;;
    esac
}

# variable NAME: its value, where it is set and not blank.
variable() {
    eval "printf '%s' \"\${$1-}\"" | sed -e 's/^[[:space:]]*//' -e 's/[[:space:]]*$//'
}

state_dir() {
    for name in MEMORYD_STATE_DIR OPENCLAW_STATE_DIR; do
        named=$(variable "$name")
        test -z "$named" || { expand "$named" && return; }
    done
    if [ ! -e "$HOME/.openclaw" ] && [ -e "$HOME/.moltbot" ]; then
        printf '%s' "$HOME/.moltbot"
    else
        printf '%s' "$HOME/.openclaw"
    fi
}

# noted_address FILE: the first address that a daemon noted there; of a socket only where it exists.
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

# first_token FILE: its first line that is neither blank nor a comment.
first_token() {
    sed -e 's/^[[:space:]]*//' -e 's/[[:space:]]*$//' -e '/^#/d' -e '/^$/d' "$1" | head -n 1
}

on_loopback() {
    case $1 in
        localhost:* | 127.*:* | "[::1]:"*) return 0 ;;
        *) return 1 ;;
    esac
}

# find_token ADDRESS: what to show there.
find_token() {
    named=$(variable MEMORYD_TOKEN_FILE)
    if [ -n "$named" ]; then
        named=$(expand "$named")
        test -r "$named" || refuse "cannot read the token file $named"
        named_token=$(first_token "$named")
        test -n "$named_token" || refuse "there is no token in the token file $named"
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
        refuse "there is no grpcurl; \`make grpcurl\` installs it, or see https://github.com/fullstorydev/grpcurl"
    fi
}

# flag NAME: yes or no, as a variable says; nothing where it is blank or not set.
flag() {
    case $(variable "$1" | tr '[:upper:]' '[:lower:]') in
        "") ;;
        1 | true | yes | on) printf yes ;;
        0 | false | no | off) printf no ;;
        *) refuse "$1 is \"$(variable "$1")\"; write 1 for yes or 0 for no" ;;
    esac
}

# named_file NAME: the file that a variable names.
named_file() {
    named=$(expand "$(variable "$1")")
    test -z "$named" || [ -r "$named" ] || refuse "cannot read $named, which $1 names"
    printf '%s' "$named"
}

## Calling

# grpcurl_there FLAGS... -- WHAT...: grpcurl with the address between its flags and what is asked of it.
grpcurl_there() {
    # What was given after "--"; each word was quoted for eval.
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
        refuse "refusing to send the token to $address in the clear; MEMORYD_TLS=1 speaks TLS, MEMORYD_TLS_CA names whom to trust"
    else
        set -- -plaintext "$@"
    fi
    if [ -n "$token" ]; then
        # Expanded by grpcurl, so that the list of processes does not show it.
        MEMORYD_SHOWN_TOKEN=$token
        export MEMORYD_SHOWN_TOKEN
        # shellcheck disable=SC2016
        set -- -expand-headers -H 'authorization: Bearer ${MEMORYD_SHOWN_TOKEN}' "$@"
    fi
    _run "$command" "$address" "$@"
}

# _run COMMAND ADDRESS FLAGS... -- WHAT...
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

# call METHOD SECONDS REQUEST: SECONDS is the documented deadline, 0 where there is none.
call() {
    seconds=${deadline:-$2}
    set -- -d "${request:-$3}" -- "$1"
    test "$seconds" = 0 || set -- -max-time "$seconds" "$@"
    grpcurl_there "$@"
}

# needs COUNT GIVEN: fails unless so many arguments were given, or a whole request.
needs() {
    if [ -z "$request" ] && [ "$2" -lt "$1" ]; then
        usage >&2
        exit 2
    fi
}

# quoted STRING: for eval.
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
        --*) refuse "there is no option $1; --help names them all" ;;
        *)
            arguments="$arguments$(quoted "$1")"
            shift
            ;;
    esac
done
eval "set -- $arguments"
