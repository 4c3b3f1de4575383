"""`KGEN_JIT=1`: a kernel that the library lacks is built, kept and used."""

import os
import shutil

import pytest
import torch
from reference import assert_close, batch

import kgen_attn
from kgen_attn import flash_attn_func, missing
from kgen_attn.library import library

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
    out.sum().backward()  # uses another kernel
    assert all(torch.isfinite(t.grad).all() for t in (q, k, v))
    made = sorted(path.relative_to(tmp_path).parts[1:] for path in tmp_path.rglob("libkgen.so"))
    assert made == [("wheel", "lib", "libkgen.so")] * 2, "one library for each pass, and nothing elsewhere"
    assert {path.name for path in tmp_path.iterdir()} == {path.relative_to(tmp_path).parts[0] for path in tmp_path.rglob("libkgen.so")}

    missing._made.cache_clear()
    monkeypatch.setenv("KGEN", "/nowhere/kgen")
    with pytest.raises(kgen_attn.MissingKernel, match="cannot be run"):
        flash_attn_func(*(draw(1, 4, 1, 24, dtype=torch.float16) for _ in range(3)))


@needs_kgen
def test_a_kept_library_that_is_none_is_made_again(draw, monkeypatch, tmp_path):
    folders = [tmp_path / str(number) for number in range(5)]  # the loader identifies files by name
    monkeypatch.setattr(missing, "cache", lambda: folders[0])
    monkeypatch.setenv("KGEN_JIT", "1")
    q, asked, make = draw(1, 4, 1, 16, dtype=torch.float16), [], missing._made
    monkeypatch.setattr(missing, "_made", lambda *words: asked.append(words) or make(*words))
    flash_attn_func(q, q, q)
    (path,) = folders[0].rglob("libkgen.so")
    whole = path.read_bytes()
    for folder, part in zip(folders[1:], (b"", b"text", whole[: len(whole) // 2], whole[:100])):
        kept = folder / path.relative_to(folders[0])
        kept.parent.mkdir(parents=True)
        kept.write_bytes(part)
        monkeypatch.setattr(missing, "cache", lambda: folder)
        make.cache_clear()
        assert make(*asked[0]).path == kept and kept.read_bytes() == whole, f"{len(part)} bytes"


@pytest.mark.parametrize("word, made", [("no", False), ("Off", False), ("0", False), ("false", False), ("1", True), ("yes", True)])
def test_words_that_turn_it_on_and_off(monkeypatch, word, made):
    monkeypatch.setenv("KGEN_JIT", word)
    monkeypatch.setattr(missing, "_made", lambda *_: library())
    wanted = kgen_attn.MissingKernel("no kernel", 3, "kgen wheel")
    if made:
        assert missing.made(None, wanted, library()) is library()
    else:
        with pytest.raises(kgen_attn.MissingKernel) as caught:
            missing.made(None, wanted, library())
        assert caught.value is wanted


def test_another_word_is_refused(monkeypatch):
    monkeypatch.setenv("KGEN_JIT", "perhaps")
    with pytest.raises(kgen_attn.MissingKernel, match="KGEN_JIT is `perhaps`, which is neither 1 nor 0"):
        missing.made(None, kgen_attn.MissingKernel("no kernel", 3, "kgen wheel"), library())


@pytest.mark.parametrize("text, mode, told", [("#!/bin/sh\n", 0o644, "no file that may be executed"), ("\x7fELF", 0o755, "cannot be run"), ("", 0o755, None)])
def test_a_kgen_that_cannot_be_run_is_told(draw, monkeypatch, tmp_path, text, mode, told):
    kgen = tmp_path / "kgen"
    kgen.write_text(text)
    kgen.chmod(mode)
    monkeypatch.setenv("KGEN", str(kgen))
    monkeypatch.setenv("KGEN_JIT", "1")
    monkeypatch.setattr(missing, "cache", lambda: tmp_path)
    missing._made.cache_clear()
    q = draw(1, 4, 1, 24, dtype=torch.bfloat16)
    with pytest.raises(kgen_attn.MissingKernel, match=told or "KGEN_JIT=1 could not make it"):
        flash_attn_func(q, q, q)


def test_a_user_without_a_home_is_told(draw, monkeypatch, tmp_path):
    kgen = tmp_path / "kgen"
    kgen.write_text("#!/bin/sh\n")
    kgen.chmod(0o755)
    for name, value in {"KGEN": str(kgen), "KGEN_JIT": "1"}.items():
        monkeypatch.setenv(name, value)
    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    # A user id without a name, as in containers.
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    missing._made.cache_clear()
    q = draw(1, 4, 1, 24, dtype=torch.bfloat16)
    with pytest.raises(kgen_attn.MissingKernel, match="the user has no home; name one with `XDG_CACHE_HOME`"):
        flash_attn_func(q, q, q)


@needs_kgen
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
