#!/bin/sh
# Starts the ranks of "fedge-aggregator --supervise --hosts FILE" by mpirun. Only the aggregator runs
# this script (aggregator/program/rank_launcher.h):
#
#   start-ranks check FILE [REMARK]
#       Ends with 0 if mpirun can start ranks on the machines of FILE. Otherwise it ends with 3 and
#       writes the reason to the standard error, with REMARK behind it.
#   start-ranks run FILE RESTARTS DRAIN PROGRAM [ARGUMENT]...
#       Becomes an mpirun that starts PROGRAM on the machines of FILE. If RESTARTS is not 0, machines
#       that do not answer are left out, since mpirun would fail again. DRAIN is --drain or empty; a
#       USR1 that comes before mpirun has started has the same effect as --drain.
#
# FILE has one machine a line, as for mpirun --hostfile: NAME, then mpirun's own words (slots=2).
# A # begins a comment. The first machine has the run's state directory.

max_bytes=65536 # of FILE
limit_s=20      # a machine that takes longer does not answer
grace_s=2       # from the TERM that ends a probe to its KILL
at_once=16      # probes at a time

# If a machine is silent for idle_s + interval_s * probes = 40 s, mpirun gives it up and ends all
# ranks. It uses TCP's keep-alive probes, whose default is eight minutes.
idle_s=20
interval_s=5
probes=4

set -u
children=
folder=

say() {
    echo "fedge-aggregator: $*" >&2
}

fail() {
    say "$*"
    exit 3
}

# The name in each line of file $1; an empty line where there is none.
names() {
    awk '{ sub(/#.*/, ""); sub(/^[ \t\r]+/, ""); sub(/[ \t\r:].*/, ""); print }' "$1"
}

check() {
    allowed=${OMPI_ALLOW_RUN_AS_ROOT+as}${OMPI_ALLOW_RUN_AS_ROOT_CONFIRM+root}
    if [ "$(id -u)" -eq 0 ] && [ "$allowed" != asroot ]; then
        fail "--hosts: mpirun does not run as root: start fedge-aggregator as another user, or set" \
            "OMPI_ALLOW_RUN_AS_ROOT=1 and OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"
    fi
    [ -f "$1" ] || fail "$1 is no file${2-}"
    [ -r "$1" ] || fail "cannot read $1${2-}"
    [ "$(wc -c <"$1")" -le $max_bytes ] || fail "$1 has more than $max_bytes bytes${2-}"
    twice=$(names "$1" | awk '$0 != "" && seen[tolower($0)]++ { print; exit }')
    [ -z "$twice" ] || fail "$1 names $twice twice: give it one line, with slots=2${2-}"
    names "$1" | grep -q . || fail "$1 names no machine${2-}"
}

# ---- which machines answer ---------------------------------------------------------------------

# Waits for all children. A signal interrupts wait, which then returns another code than 0.
await_children() {
    until wait; do
        :
    done
    children=
}

end_children() {
    [ -z "$children" ] || kill $children 2>/dev/null
    [ -z "$folder" ] || rm -rf "$folder"
}

# Starts a process on machine $1 in the way in which ranks are started; if that succeeds, file $2 is
# made. TERM ends mpirun and not the shell around it, so that timeout stays to kill what remains.
start_probe() {
    timeout -k $grace_s $limit_s sh -c 'trap : TERM; mpirun --host "$1:1" -n 1 true && : >"$2"' \
        sh "$1" "$2" </dev/null >/dev/null 2>&1 &
    children="$children $!"
}

# Probes the machines of file $1 and leaves in [hosts] the name of a file with the lines of those that
# answer: $1 if all do. Fails if the first machine, whose name is left in [first], does not answer.
find_hosts() {
    folder=$(mktemp -d) || fail "no folder for the list of machines that answer"
    names "$1" >"$folder/names"
    number=0 started=0
    while read -r name; do
        number=$((number + 1))
        [ -n "$name" ] || continue
        start_probe "$name" "$folder/$number"
        started=$((started + 1))
        [ $((started % at_once)) -ne 0 ] || await_children
    done <"$folder/names"
    await_children
    number=0 first='' left_out='' hosts=$1
    while read -r name; do
        number=$((number + 1))
        [ -n "$name" ] || continue
        first=${first:-$name}
        if [ -e "$folder/$number" ]; then
            awk "NR == $number" "$1" >>"$folder/hosts"
        else
            say "$name does not answer; it is left out"
            left_out="$left_out $name"
        fi
    done <"$folder/names"
    found=yes
    case "$left_out " in
    " ") ;;
    " $first "*) found=no ;;
    *)
        exec 9<"$folder/hosts" # mpirun opens it by this descriptor
        hosts=/proc/self/fd/9
        ;;
    esac
    rm -rf "$folder"
    folder=
    [ $found = yes ]
}

run() {
    file=$1 restarts=$2 drain=$3 tries=0 hosts=$1
    shift 3
    trap 'drain=--drain' USR1
    trap 'end_children; exit 143' TERM INT
    check "$file"
    command -v mpirun >/dev/null || fail "cannot start mpirun: install openmpi-bin"
    while [ "$restarts" -ne 0 ] && ! find_hosts "$file"; do
        pause_s=30
        [ $tries -ge 4 ] || pause_s=$((1 << tries))
        tries=$((tries + 1))
        say "$first, the first machine of $file, has the run: start it, or change the file;" \
            "trying again in $pause_s s"
        # A signal ends the pause: the file may be another now.
        sleep $pause_s &
        children=$!
        wait
        kill $children 2>/dev/null
        await_children
        check "$file"
    done
    # Parameters that mpirun's command line cannot name. Open MPI would bind all threads of a rank to
    # one core.
    export OMPI_MCA_hwloc_base_binding_policy="${OMPI_MCA_hwloc_base_binding_policy-none}"
    export OMPI_MCA_oob_tcp_keepalive_time="${OMPI_MCA_oob_tcp_keepalive_time-$idle_s}"
    export OMPI_MCA_oob_tcp_keepalive_intvl="${OMPI_MCA_oob_tcp_keepalive_intvl-$interval_s}"
    export OMPI_MCA_oob_tcp_keepalive_probes="${OMPI_MCA_oob_tcp_keepalive_probes-$probes}"
    # A HUP, from a terminal that closes, would make mpirun end its ranks.
    exec env --block-signal=HUP mpirun -x FEDGE_SUPERVISED --hostfile "$hosts" "$@" $drain
}

command=$1
shift
"$command" "$@"
