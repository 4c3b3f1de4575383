#!/usr/bin/env bash
# Tests the Python package as users get it: a wheel of emulated kernels, installed into a fresh environment.
#
#   scripts/test_python.sh [PYTEST ARGUMENTS...]      for example: -k kvcache
#
# KGEN names the kgen binary (default target/release/kgen), PYTHON the interpreter (python3) of the environment.
# KGEN_TEST_TORCH=system uses the torch of that interpreter instead of a new one, which is a large download. With
# KGEN_TEST_WHEEL=FILE that wheel is tested; one for GPUs needs a GPU and the kernels of python/tests/grid.toml.
set -euo pipefail
cd "$(dirname "$0")/.."
kgen=$(realpath "${KGEN:-target/release/kgen}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

wheel=${KGEN_TEST_WHEEL:-}
if [[ -z $wheel ]]; then
    "$kgen" wheel --variants python/tests/grid.toml --device emulator --build-dir "$work/build" --output "$work/dist"
    wheel=$(echo "$work"/dist/*.whl)
fi
outer=${PYTHON:-python3}
"$outer" -m venv "$work/venv"
python=$work/venv/bin/python

# Without torch: the contents are printed, and the functions report the missing torch.
"$python" -m pip install --quiet --no-deps --force-reinstall "$wheel"
"$python" -m kgen_attn
if [[ ${KGEN_TEST_TORCH:-} == system ]]; then
    # After the environment's own packages. (--system-site-packages would not see those of another environment.)
    folder='import sysconfig; print(sysconfig.get_path("purelib"))'
    "$outer" -c "$folder" >"$("$python" -c "$folder")/outer.pth"
else
    "$python" -m pip install --quiet torch numpy
fi
"$python" -c 'import pytest' 2>/dev/null || "$python" -m pip install --quiet pytest

# From a copy: in the repository the package's sources would take precedence over the installed ones.
cp -r python/tests "$work/tests"
cd "$work/tests"
KGEN=$kgen "$python" -m pytest -q -p no:cacheprovider "$@"
