"""The ops equal those of vLLM 0.26.0's two libraries, argument by argument (schemas.txt: in Torch's format)."""

import pathlib
import subprocess

import pytest
import torch

from conftest import FOLDER

EXPECTED = pathlib.Path(__file__).with_name("schemas.txt").read_text().splitlines()


@pytest.mark.parametrize("expected", EXPECTED, ids=lambda text: text.split("(")[0])
def test_schema(expected):
    library, op = expected.split("(")[0].split("::")
    assert str(getattr(getattr(torch.ops, library), op).default._schema) == expected


def test_there_are_no_other_ops():
    names = {name.split(".")[0] for name in torch._C._dispatch_get_all_op_names() if name.startswith(("_vllm_fa2_C::", "_vllm_fa3_C::"))}
    assert names == {text.split("(")[0] for text in EXPECTED}


@pytest.mark.parametrize("module", ["_vllm_fa2_C", "_vllm_fa3_C"])
def test_a_module_exports_its_entry_alone(module):
    # A statically linked libstdc++ whose symbols were replaced by the process's own has crashed when formatting a
    # number.
    library = FOLDER / "vllm" / "vllm_flash_attn" / f"{module}.abi3.so"
    listed = subprocess.run(["nm", "-D", "--defined-only", "--format=posix", library], check=True, capture_output=True, text=True)
    exported = {line.split()[0] for line in listed.stdout.splitlines()}
    assert {name for name in exported if not name.startswith("kgen_test_")} == {f"PyInit_{module}"}
