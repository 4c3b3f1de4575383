#!/bin/sh
# Stands in for `python3 -m pip` in tests: its downloads have the right names and the wrong content.
# MOCK_PIP=error makes the download fail as pip fails without a network; MOCK_PIP=config makes all of it fail as pip does
# with a broken configuration; MOCK_PIP=user makes it one that Python finds among the user's own packages alone.
[ "$1 $MOCK_PIP" != "-I user" ] || { echo "$0: No module named pip" >&2 && exit 1; }
shift 3 # -I -m pip
[ "$MOCK_PIP" != config ] || {
    printf '%s\n' "Configuration file could not be loaded." "File contains no section headers." "file: '/x/pip.conf', line: 1" >&2
    exit 2
}
[ "$1" != --version ] || { echo "pip 24.0 (mock)" && exit 0; }
[ "$MOCK_PIP" != error ] || {
    echo "ERROR: Could not find a version that satisfies the requirement nvidia-cuda-nvcc==13.0.88 (from versions: none)"
    exit 1
}
destination=.
while [ $# -gt 0 ]; do
    case $1 in
    --dest) destination=$2 && shift ;;
    *==*) echo "not a wheel" >"$destination/$(echo "${1%%==*}" | tr - _)-${1##*==}-py3-none-any.whl" ;;
    esac
    shift
done
