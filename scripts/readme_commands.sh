#!/usr/bin/env bash
# Runs every command of the `sh` blocks of a page as written, in order, in an empty folder, with the built kgen in PATH.
# Blocks of C and of CMake whose first line is a comment with the name of a file are written to that file before.
#
#   scripts/readme_commands.sh [PAGE]      PAGE: docs/integrate.md, which needs CMake too; default README.md
#
# KGEN: the binary, default target/release/kgen.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
page=${1:-README.md}
PATH="$(dirname "$(realpath "${KGEN:-$root/target/release/kgen}")"):$PATH"
export PATH
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/place"
cd "$folder/place"

awk '
    /^```/ { if (file != "") close(file); file = ""; first = !inside && /^```(c|cmake)$/; inside = !inside; next }
    first { first = 0; if (NF == 3 && $1 == "/*" || NF == 2 && $1 == "#") { file = $2; system("mkdir -p $(dirname " file ")"); next } }
    file != "" { print > file }
' "$root/$page"
awk '/^```sh$/ { inside = 1; next } /^```/ { inside = 0 } inside && NF && !/^ *#/' "$root/$page" > "$folder/commands"
count=$(wc -l < "$folder/commands")
((count > 0)) || { echo "$page has no commands to run" >&2; exit 1; }
{
    echo "trap 'printf \"%s\\n\" \"\$BASH_COMMAND\" > ../failed' ERR"
    cat "$folder/commands"
} > "$folder/script"
if ! bash -Eeuo pipefail "$folder/script" > "$folder/log" 2>&1; then
    printf '%s: this command failed: %s\n' "$page" "$(cat "$folder/failed")" >&2
    tail -n 20 "$folder/log" >&2
    exit 1
fi
echo "$count commands of $page run as written"
