#!/usr/bin/env python3
"""Creates a folder in which other projects' tests run on kgen, unmodified.

    python3 tests/suites/prepare.py OUT --flash-attention CHECKOUT      # of github.com/Dao-AILab/flash-attention
    python3 tests/suites/prepare.py OUT --vllm SOURCES                  # vLLM's unpacked source archive

FlashAttention's test files import a package `flash_attn`. The one in OUT has kgen_attn's functions and, from the
checkout, the other modules that the tests need: padding and rotary embedding. FlashAttention-3's file,
test_flash_attn_3.py in OUT, imports a module `flash_attn_interface`, which is kgen_attn's here. vLLM's file imports
vLLM, which must be installed with kgen's ops instead of its own (docs/vllm.md). The sampling plugin is copied too. None
of these files is committed.
"""

import argparse
import pathlib
import shutil

FUNCTIONS = (
    "flash_attn_func", "flash_attn_kvpacked_func", "flash_attn_qkvpacked_func", "flash_attn_varlen_func",
    "flash_attn_varlen_kvpacked_func", "flash_attn_varlen_qkvpacked_func", "flash_attn_with_kvcache",
)
#: FlashAttention-3's interface over kgen, which cannot merge partial results of other libraries.
FA3_INTERFACE = """from kgen_attn.flash_attn_interface import *


def flash_attn_combine(*args, **kwargs):
    raise NotImplementedError("kgen_attn has no `flash_attn_combine`")
"""
#: The number of keys with one scale in S_dmask: kgen_attn's has one for all keys of a row.
BLOCK_SIZE = """def _get_block_size_n(*_):
    return 1 << 30
"""
HELPERS = ("bert_padding.py", "layers/rotary.py", "ops/triton/rotary.py")


def flash_attention(checkout, out):
    package = out / "flash_attn"
    for helper in HELPERS:
        target = package / helper
        target.parent.mkdir(parents=True, exist_ok=True)
        (target.parent / "__init__.py").touch()
        shutil.copy(checkout / "flash_attn" / helper, target)
    (package / "ops" / "__init__.py").touch()
    imports = f"from kgen_attn import {', '.join(FUNCTIONS)}\n"
    (package / "__init__.py").write_text(imports)
    (package / "flash_attn_interface.py").write_text(f"{imports}\nUSE_TRITON_ROCM = False\n\n\n{BLOCK_SIZE}")
    shutil.copy(checkout / "tests" / "test_flash_attn.py", out)
    flash_attention_3(checkout / "hopper", out)


def flash_attention_3(hopper, out):
    (out / "flash_attn_interface.py").write_text(FA3_INTERFACE)
    for helper in ("padding.py", "test_util.py"):
        shutil.copy(hopper / helper, out)
    shutil.copy(hopper / "test_flash_attn.py", out / "test_flash_attn_3.py")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--flash-attention", type=pathlib.Path, metavar="CHECKOUT")
    parser.add_argument("--vllm", type=pathlib.Path, metavar="SOURCES")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    if args.flash_attention:
        flash_attention(args.flash_attention, args.out)
    if args.vllm:
        shutil.copy(args.vllm / "tests" / "kernels" / "attention" / "test_flash_attn.py", args.out / "test_vllm_flash_attn.py")
    shutil.copy(pathlib.Path(__file__).with_name("sample.py"), args.out)


if __name__ == "__main__":
    main()
