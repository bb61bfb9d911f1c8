#!/usr/bin/env bash
# How much the tests notice: breaks one line at a time, builds, and runs the tests that should fail.
#
#   bash tests/mutation.sh [--files FILE_OR_FOLDER]... [--count N] [--seed S] [option]...
#
#   --files F       a source file or a folder of them, may be repeated; default: edge without train,
#                   aggregator without its simulator, client, secure
#   --count N       mutants that compile and differ from the original program (default 20)
#   --seed S        which ones are drawn (default 1): the same tree and seed give the same mutants
#   --only KEY      only the mutant with this key, may be repeated
#   --net           tests over sockets, too, for what the unit tests have let live
#   --sanitize      builds with the address and undefined sanitizers, in build/mutation-sanitized
#   --tests REGEX   only tests whose names it is found in, as ctest -R
#   --place DIR     where the copy is built, so that several can run at once (default build/mutation)
#   --list          prints the mutants that would be drawn, and ends
#   --jobs N        compilers at the same time (default: all cores); tests run one at a time
#   --wrap CMD      put before each build, e.g. "nice"
#   --minutes N     ends after so long
#
# A mutant is dead when a test fails or takes ten times as long as before. The tests of the file's
# folder come first, then the other unit tests. Survivors are printed as diffs and written to
# survivors-S.txt in that place; tests/mutation/judged.txt says which were judged to be equivalent.
# All happens in a copy of the tree.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
case " $* " in
*" --help "* | *" -h "*)
    sed -n '2,25s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
esac
exec python3 -B "$root/tests/mutation/mutation.py" "$@"
