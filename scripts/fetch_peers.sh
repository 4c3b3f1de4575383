#!/usr/bin/env bash
# Downloads FlashAttention-3 for benches/dense.py forward with this machine's pip settings, and unpacks it.
#
#   scripts/fetch_peers.sh [DIR]      # default .peers; prints the folder for --site
#
# DIR holds the wheel of `fa3-fwd` (27 MB) and DIR/site its contents (105 MB), for x86_64 and any Python 3.9 or newer.
# Copy either to a GPU machine without a network; there `python3 -m zipfile -e DIR/fa3_fwd-*.whl SITE` unpacks the
# wheel.
set -euo pipefail
folder=${1:-.peers}
version=${FA3_FWD:-0.0.3}
mkdir -p "$folder"
python3 -m pip download --quiet --no-deps --only-binary=:all: --python-version 3.12 --platform manylinux_2_24_x86_64 \
    --dest "$folder" "fa3-fwd==$version"
rm -rf "$folder/site"
python3 -m zipfile -e "$folder"/fa3_fwd-"$version"-*.whl "$folder/site"
echo "$folder/site"
