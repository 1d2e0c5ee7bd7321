#!/bin/sh
# client_exports.sh HEADER LIBRARY: the library exports the functions of its header, no more and
# no less.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tr '\n' ' ' <"$1" | sed 's/#define GEMMD_API//' | grep -o 'GEMMD_API [^;(]*(' |
    grep -o 'gemmd_[a-z_]*($' | tr -d '(' | sort >"$work/declared"
nm -D --defined-only "$2" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort >"$work/exported"
[ -s "$work/declared" ]
diff -u "$work/declared" "$work/exported"
