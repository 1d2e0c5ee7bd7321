#!/bin/sh
# run_tests.sh SCRIPT: deploy/run-tests tells tests that pass, fail and are not there apart.
set -u
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$1" "$work/run-tests"
mkdir -p "$work/tests/unit" "$work/tests/e2e" "$work/tests/gpu"

test_that() { # EXIT-STATUS, in words, then the arguments
    wanted=$1 what=$2
    shift 2
    "$work/run-tests" "$@" >"$work/output" 2>&1
    [ $? = "$wanted" ] || { echo "$what: not $wanted:"; cat "$work/output"; exit 1; }
}

printf '#!/bin/sh\nexit 0\n' >"$work/tests/unit/test_good"
printf '#!/bin/sh\nexit 1\n' >"$work/tests/e2e/test_bad"
chmod +x "$work"/tests/*/test_*
test_that 0 "one that passes" unit
test_that 1 "one that fails" unit e2e
test_that 2 "a folder without tests" unit gpu
test_that 2 "a name that is none" uint
test_that 2 "an option that is none" --devise cpu unit
