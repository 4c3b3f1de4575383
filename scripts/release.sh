#!/usr/bin/env bash
# Files of a release for people without Rust: a wheel `kgen` whose only content is the binary, a tar archive of the
# binary with man pages and completions, and their hashes.
#
#   scripts/release.sh [--output DIR] [--binary FILE]
#
# Without --binary it compiles kgen against glibc 2.17, the oldest that Rust supports, with cargo-zigbuild (needs Rust,
# Python's venv and a package index), so that the wheel is tagged manylinux_2_17. With --binary it packs that one, which
# must run here; the tag then contains the glibc version that the binary needs. The same binary gives the same files.
set -euo pipefail
cd "$(dirname "$0")/.."
output=dist binary=
while (($#)); do
    case $1 in
    --output) output=$2 && shift 2 ;;
    --binary) binary=$2 && shift 2 ;;
    *) sed -n '2,9s/^# \{0,1\}//p' "$0" >&2 && exit 2 ;;
    esac
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [[ -z $binary ]]; then
    python3 -m venv "$work/venv"
    "$work/venv/bin/pip" install --quiet cargo-zigbuild==0.24.1 ziglang==0.17.1
    target=$(uname -m)-unknown-linux-gnu
    PATH=$work/venv/bin:$PATH cargo zigbuild --release --locked --target "$target.2.17"
    binary=${CARGO_TARGET_DIR:-target}/$target/release/kgen
fi

version=$("$binary" --version | cut -d' ' -f2)
name=kgen-$version-$(uname -m)-linux
folder=$work/$name
mkdir -p "$folder/completions" "$output"
cp LICENSE-APACHE LICENSE-MIT README.md "$folder"
install -m 755 "$binary" "$folder/kgen"
"$binary" man --output "$folder/man/man1"
"$binary" completions bash >"$folder/completions/kgen.bash"
"$binary" completions zsh >"$folder/completions/_kgen"
"$binary" completions fish >"$folder/completions/kgen.fish"
tar --create --directory "$work" --sort=name --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX \
    --mtime="@${SOURCE_DATE_EPOCH:-0}" "$name" | gzip --best --no-name >"$output/$name.tar.gz"

"$binary" __pack --binary "$binary" --output "$output"
(cd "$output" && sha256sum "$name.tar.gz" kgen-"$version"-py3-none-*.whl >SHA256SUMS && cat SHA256SUMS)
