#!/bin/sh
# Mock of `python3 -m pip` for tests: downloads have the right file names and wrong contents. MOCK_PIP selects a
# failure: "error": the download fails as without a network; "config": every command fails as with a broken
# configuration; "user": pip is installed only in the user's site-packages.
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
