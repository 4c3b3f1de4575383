"""`KGEN_JIT=1`: a kernel that the library lacks is made, kept and used."""

import os
import shutil

import pytest
import torch
from reference import assert_close, batch

import kgen_attn
from kgen_attn import flash_attn_func, missing

needs_kgen = pytest.mark.skipif(not (os.environ.get("KGEN") or shutil.which("kgen")), reason="needs kgen in PATH, or named by KGEN")


@needs_kgen
def test_a_missing_kernel_is_made_once(draw, monkeypatch, tmp_path):
    missing._made.cache_clear()
    monkeypatch.setattr(missing, "cache", lambda: tmp_path)
    monkeypatch.setenv("KGEN_JIT", "1")
    monkeypatch.chdir(tmp_path)
    q, k, v = (draw(1, 12, 2, 24, grad=True) for _ in range(3))
    out = flash_attn_func(q, k, v, causal=True)
    (exact, _), (low, _) = (batch(*(t.detach().cpu() for t in (q, k, v)), causal=True, dtype=d) for d in (torch.float64, q.dtype))
    assert_close(out.detach().cpu(), exact, low, "O")
    out.sum().backward()  # of another kernel
    assert all(torch.isfinite(t.grad).all() for t in (q, k, v))
    made = sorted(path.relative_to(tmp_path).parts[1:] for path in tmp_path.rglob("libkgen.so"))
    assert made == [("wheel", "lib", "libkgen.so")] * 2, "one library for each pass, and nothing elsewhere"
    assert {path.name for path in tmp_path.iterdir()} == {path.relative_to(tmp_path).parts[0] for path in tmp_path.rglob("libkgen.so")}

    missing._made.cache_clear()
    monkeypatch.setenv("KGEN", "/nowhere/kgen")
    with pytest.raises(kgen_attn.MissingKernel, match="cannot be run"):
        flash_attn_func(*(draw(1, 4, 1, 24, dtype=torch.float16) for _ in range(3)))


def test_what_cannot_be_made_is_told(draw, monkeypatch, tmp_path):
    missing._made.cache_clear()
    monkeypatch.setattr(missing, "cache", lambda: tmp_path)
    monkeypatch.setenv("KGEN_JIT", "1")
    script = tmp_path / "kgen"
    script.write_text("#!/bin/sh\necho 'error: no room for a compiler' >&2\nexit 3\n")
    script.chmod(0o755)
    monkeypatch.setenv("KGEN", str(script))
    q = draw(1, 4, 1, 24, dtype=torch.float16)
    with pytest.raises(kgen_attn.MissingKernel, match="ended with 3: error: no room for a compiler") as caught:
        flash_attn_func(q, q, q)
    assert "KGEN_JIT=1 could not make it" in str(caught.value)


def test_without_kgen_the_error_says_so(draw, monkeypatch, tmp_path):
    missing._made.cache_clear()
    monkeypatch.setenv("KGEN_JIT", "1")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("KGEN", raising=False)
    q = draw(1, 4, 1, 24, dtype=torch.float16)
    with pytest.raises(kgen_attn.MissingKernel, match="`kgen` is not in PATH"):
        flash_attn_func(q, q, q)
