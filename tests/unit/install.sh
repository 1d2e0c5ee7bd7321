#!/bin/sh
# install.sh BUILD_DIRECTORY: what is installed fits together wherever the prefix is.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$1" --prefix "$work/opt" >/dev/null

started=$(sed -n 's/^ExecStart=//p' "$work/opt/lib/systemd/system/gemmd.service")
[ "$started" = "$work/opt/sbin/gemmd" ] || { echo "the service starts $started"; exit 1; }
"$started" --version
"$work/opt/bin/gemmctl" --version
