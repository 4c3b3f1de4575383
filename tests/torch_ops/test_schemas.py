"""The ops are those of vLLM 0.26.0's two libraries, argument by argument (schemas.txt: as Torch prints theirs)."""

import pathlib

import pytest
import torch

EXPECTED = pathlib.Path(__file__).with_name("schemas.txt").read_text().splitlines()


@pytest.mark.parametrize("expected", EXPECTED, ids=lambda text: text.split("(")[0])
def test_schema(expected):
    library, op = expected.split("(")[0].split("::")
    assert str(getattr(getattr(torch.ops, library), op).default._schema) == expected


def test_there_are_no_other_ops():
    names = {name.split(".")[0] for name in torch._C._dispatch_get_all_op_names() if name.startswith(("_vllm_fa2_C::", "_vllm_fa3_C::"))}
    assert names == {text.split("(")[0] for text in EXPECTED}
