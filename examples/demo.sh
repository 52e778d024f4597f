#!/usr/bin/env bash
# Has a script with a wrong result examined, then records another that fails to compile and follows
# one operation through the stages.
set -u
inductoscope=$1
wrong=$(dirname "$0")/first_missing.py
script=$(dirname "$0")/attention_bias.py
recordings=$(mktemp -d)
trap 'rm -rf "$recordings"' EXIT
export INDUCTOSCOPE_RECORDINGS=$recordings

say() { printf '\n\033[1m$ %s\033[0m\n' "$*"; }

expect_findings() {
    if [ "$1" -ne 1 ]; then
        echo "demo: expected findings (exit code 1), got exit code $1" >&2
        exit 1
    fi
}

say "inductoscope doctor $wrong"
"$inductoscope" doctor "$wrong"
expect_findings $?

say "inductoscope run --fresh $script"
"$inductoscope" run --fresh --findings-exit-code "$script"
expect_findings $?

say "inductoscope show --op index_put"
"$inductoscope" show --op index_put
