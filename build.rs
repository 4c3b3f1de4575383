//! Rebuilds kgen when a file is added to or removed from what it embeds (cargo itself only sees edits), and gives it
//! the hash of the code that judges kernels, which is part of every kept verdict's key, and the triple it is built for.
//! Compiles the dispatcher's cost model, which `kgen predict` calls.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// The modules that draw inputs, run kernels and check their outputs, with those whose code they run: `expression`
/// computes declared scores for the reference, `isolate` carries verdicts, `kernel` and `plan` say what a kernel is.
const JUDGES: [&str; 7] = ["src/check", "src/device", "src/expression", "src/family", "src/isolate", "src/kernel", "src/plan"];

fn main() -> io::Result<()> {
    println!("cargo:rerun-if-changed=python/kgen_attn");
    println!("cargo:rerun-if-changed=python/kgen_peers");
    println!("cargo:rerun-if-changed=suites");
    println!("cargo:rerun-if-changed=templates");
    println!("cargo:rerun-if-changed=variants.toml");
    let mut files = Vec::new();
    for room in JUDGES {
        println!("cargo:rerun-if-changed={room}");
        collect(Path::new(room), &mut files)?;
    }
    files.sort();
    let mut hasher = blake3::Hasher::new();
    for file in files {
        hasher.update(&fs::read(file)?);
    }
    println!("cargo:rustc-env=KGEN_JUDGE={}", hasher.finalize());
    println!("cargo:rerun-if-changed=templates/include/kgen/path_cost.cuh");
    // Plain arithmetic: no C++ library is linked.
    let mut compiler = cc::Build::new();
    compiler.cpp(true).cpp_link_stdlib(None).std("c++17").include("templates/include");
    compiler.file("src/family/attention/cost/shipped.cpp").compile("kgen_cost");
    let target = std::env::var("TARGET").map_err(io::Error::other)?;
    println!("cargo:rustc-env=KGEN_TARGET={target}");
    Ok(())
}

/// Every file below `folder`.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() { collect(&path, files)? } else { files.push(path) }
    }
    Ok(())
}
