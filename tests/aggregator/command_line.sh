# For tests of command lines, sourced: an empty folder to work in, which goes at the end with the process $pid.
dir=$(mktemp -d)
pid=
finish() {
    [ -z "$pid" ] || kill -KILL "$pid" 2>/dev/null || true
    rm -rf "$dir"
}
trap finish EXIT
cd "$dir"

fail() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 1
}
# ends CODE WORDS COMMAND...: the command must end with CODE and say WORDS.
ends() {
    local code=$1 words=$2 got=0
    shift 2
    "$@" >said 2>&1 || got=$?
    [ "$got" = "$code" ] || fail "exit $got, wanted $code: $* ($(cat said))"
    grep -qF -- "$words" said || fail "'$words' is not in: $(cat said)"
}
# await COMMAND...: waits until it succeeds, for ten minutes at most: a machine may be slow.
await() {
    local end=$((SECONDS + 600))
    until "$@" 2>/dev/null; do
        [ "$SECONDS" -lt "$end" ] || fail "waited in vain for: $*; $(cat said 2>/dev/null)"
        sleep 0.02
    done
}
# has_lines FILE NUMBER: whether there are as many, or more.
has_lines() {
    [ "$(wc -l 2>/dev/null <"$1" || echo 0)" -ge "$2" ]
}
# end_by SIGNAL: sends it to the process $pid and waits for its end; $code is its exit code.
end_by() {
    kill "-$1" "$pid"
    code=0
    wait "$pid" || code=$?
    pid=
}
