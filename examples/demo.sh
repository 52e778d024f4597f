#!/usr/bin/env bash
# Runs a misbehaving script under the scope, prints the findings, and follows one operation.
set -u
inductoscope=$1
script=$(dirname "$0")/attention_bias.py
recordings=$(mktemp -d)
trap 'rm -rf "$recordings"' EXIT
export INDUCTOSCOPE_RECORDINGS=$recordings

say() { printf '\n\033[1m$ %s\033[0m\n' "$*"; }

say "inductoscope run --fresh $script"
"$inductoscope" run --fresh --findings-exit-code "$script"
status=$?
if [ "$status" -ne 1 ]; then
    echo "demo: expected findings (exit code 1), got exit code $status" >&2
    exit 1
fi

say "inductoscope show --op index_put"
"$inductoscope" show --op index_put
