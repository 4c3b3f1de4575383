#!/usr/bin/env bash
# Runs every command of README.md's `sh` blocks as written, in an empty folder, with the built kgen in PATH.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
export PATH="$root/target/release:$PATH"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

count=0
while IFS= read -r command; do
    count=$((count + 1))
    if ! bash -euo pipefail -c "$command" >"$folder/log" 2>&1; then
        printf 'README.md: this command failed: %s\n' "$command" >&2
        tail -n 20 "$folder/log" >&2
        exit 1
    fi
done < <(awk '/^```sh$/ { inside = 1; next } /^```/ { inside = 0 } inside && NF && !/^ *#/' "$root/README.md")
((count > 0)) || { echo "README.md has no commands to run" >&2; exit 1; }
echo "$count commands of README.md run as written"
