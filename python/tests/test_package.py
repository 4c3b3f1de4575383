"""The installed package: its output, its discovery, and its behaviour without a GPU, torch or library."""

import json
import os
import subprocess
import sys

import pytest

from kgen_attn import abi, elf
from kgen_attn.library import library


def run(code, *arguments, **environment):
    """Runs a new Python process; torch cannot be imported in it if KGEN_TEST_NO_TORCH is set."""
    line = [sys.executable, *(["-c", code] if code else ["-m", "kgen_attn"]), *arguments]
    return subprocess.run(line, env={**os.environ, **environment}, capture_output=True, text=True, check=False)


NO_TORCH = "import sys; sys.modules['torch'] = None\n"


def test_contents_are_printed_for_people_and_programs():
    done = run(None)
    assert done.returncode == 0, done.stderr
    assert str(library().path) in done.stdout and f"{len(library().kernels)} kernels" in done.stdout
    document = json.loads(run(None, "--format", "json").stdout)
    assert len(document["kernels"]) == len(library().kernels)
    first = document["kernels"][0]
    assert first["name"] == library().kernels[0].name and first["features"] == list(library().kernels[0].features)
    assert document["emulated"] == (library().emulator is not None)


@pytest.mark.parametrize("form", ["human", "json"])
def test_a_reader_that_ends_early_is_no_error(form):
    line = [sys.executable, "-m", "kgen_attn", "--format", form]
    program = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    program.stdout.close()
    assert program.stderr.read() == b"" and program.wait() == 0


def test_a_library_that_is_cut_off_is_refused_and_kills_nobody(tmp_path):
    whole = library().path.read_bytes()
    assert not elf.is_cut_off(library().path)
    path = tmp_path / "libkgen.so"
    for length in (len(whole) // 2, 4096, 100, 60, 20):
        path.write_bytes(whole[:length])
        assert elf.is_cut_off(path)
        done = run(None, KGEN_LIBRARY=str(path))
        assert done.returncode == 3 and "it is cut off" in done.stderr, f"{length} bytes: {done.returncode} {done.stderr}"
    path.write_bytes(b"")
    assert not elf.is_cut_off(path) and run(None, KGEN_LIBRARY=str(path)).returncode == 3


def test_contents_need_no_torch():
    program = NO_TORCH + "import runpy; sys.argv = ['kgen_attn']; runpy.run_module('kgen_attn', run_name='__main__')"
    done = run(program)
    assert done.returncode == 0 and "kernels" in done.stdout, done.stderr


def test_functions_without_torch_say_what_is_missing():
    done = run(NO_TORCH + "from kgen_attn import flash_attn_func")
    assert "ImportError" in done.stderr and "needs PyTorch" in done.stderr, done.stderr


def test_a_library_that_is_none_is_refused_by_name(tmp_path):
    missing = run(None, KGEN_LIBRARY=str(tmp_path / "none.so"))
    assert missing.returncode == 3 and "which is not a file" in missing.stderr and "Traceback" not in missing.stderr
    (tmp_path / "text.so").write_text("text")
    garbage = run(None, KGEN_LIBRARY=str(tmp_path / "text.so"))
    assert garbage.returncode == 3 and "cannot load" in garbage.stderr and "Traceback" not in garbage.stderr


def test_a_name_without_a_slash_is_a_file_of_the_current_folder_and_no_other(tmp_path):
    # The loader searches LD_LIBRARY_PATH for names without a slash; the file that it would find there is not a library.
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "mine.so").write_text("text")
    (tmp_path / "mine.so").symlink_to(library().path)
    environment = {**os.environ, "KGEN_LIBRARY": "mine.so", "LD_LIBRARY_PATH": str(tmp_path / "elsewhere")}
    line = [sys.executable, "-m", "kgen_attn"]
    done = subprocess.run(line, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and str(tmp_path / "mine.so") in done.stdout, done.stderr


def test_a_library_for_gpus_refuses_cpu_tensors_with_a_sentence(tmp_path):
    source = tmp_path / "stub.c"
    names = "kgen_fwd kgen_bwd kgen_append_kv kgen_fwd_kvcache kgen_fwd_workspace kgen_bwd_workspace kgen_last_error"
    functions = "".join(f"long {name}(void) {{ return 0; }}\n" for name in names.split())
    version = f"unsigned kgen_abi_version(void) {{ return {abi.ABI_VERSION}; }}\n"
    source.write_text(functions + version + "void* kgen_variants(unsigned long* n) { *n = 0; return 0; }\n")
    stub = tmp_path / "libkgen.so"
    subprocess.run(["cc", "-shared", "-fPIC", str(source), "-o", str(stub)], check=True)
    call = "import torch; from kgen_attn import flash_attn_func; q = torch.zeros(1, 4, 1, 32, dtype=torch.float16); flash_attn_func(q, q, q)"
    done = run(call, KGEN_LIBRARY=str(stub), CUDA_VISIBLE_DEVICES="")
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ValueError: `q` is on `cpu`, and no GPU can be used here: "), done.stderr


def test_types_are_announced():
    import kgen_attn

    assert os.path.isfile(os.path.join(os.path.dirname(kgen_attn.__file__), "py.typed"))
