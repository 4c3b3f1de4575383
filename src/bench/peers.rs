//! The peers: implementations of attention by others, each called by a file of the Python package `kgen_peers`, which
//! is embedded in kgen and written to a folder while it is used.

use include_dir::{Dir, include_dir};
use std::{
    io,
    path::{Path, PathBuf},
    process::Command,
};
use tempfile::TempDir;

static PACKAGE: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/python/kgen_peers");

/// Name and meaning of each peer, in the order of lists.
pub const PEERS: [(&str, &str); 12] = [
    ("eager", "PyTorch: matmul, softmax, matmul"),
    ("sdpa-flash", "PyTorch's scaled_dot_product_attention with FlashAttention-2"),
    ("sdpa-cudnn", "PyTorch's scaled_dot_product_attention with cuDNN"),
    ("sdpa-efficient", "PyTorch's scaled_dot_product_attention with the memory-efficient kernels"),
    ("sdpa-math", "PyTorch's scaled_dot_product_attention without a fused kernel"),
    ("compile", "the eager attention by torch.compile(mode=\"max-autotune\")"),
    ("flex", "PyTorch's FlexAttention, compiled"),
    ("fa2", "FlashAttention-2, the package flash-attn"),
    ("fa3", "FlashAttention-3: flash-attn-interface, the wheel fa3-fwd, or the library in vLLM's wheel"),
    ("fa4", "FlashAttention-4, the package flash-attn-4"),
    ("flashinfer", "FlashInfer, the package flashinfer-python"),
    ("triton", "the fused attention of Triton's tutorial, 06-fused-attention.py in a folder of `--site`"),
];

/// The interpreter that runs the workers of peers, and the folder of their package.
pub struct Python {
    program: PathBuf,
    sites: Vec<PathBuf>,
    folder: TempDir,
}

impl Python {
    /// Writes the package to a temporary folder, which is removed with this value. `sites` are folders that hold
    /// libraries of peers.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn new(program: &Path, sites: &[PathBuf]) -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix("kgen-peers-").tempdir()?;
        let package = folder.path().join("kgen_peers");
        std::fs::create_dir(&package)?;
        PACKAGE.extract(&package)?;
        let absolute = |site: &PathBuf| std::path::absolute(site).unwrap_or_else(|_| site.clone());
        Ok(Self { program: program.to_owned(), sites: sites.iter().map(absolute).collect(), folder })
    }

    /// The command of a worker.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.arg(self.folder.path().join("kgen_peers")).args(&self.sites);
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn each_peer_has_a_line_in_the_table_of_the_package() {
        let table = PACKAGE.get_file("table.py").and_then(|file| file.contents_utf8()).expect("the table");
        let name = |line: &'static str| Some(line.trim().strip_prefix('"')?.split_once("\": (")?.0);
        let named: Vec<&str> = table.lines().filter_map(name).collect();
        assert_eq!(named, PEERS.map(|(name, _)| name));
    }

    #[test]
    fn the_package_is_there_while_it_is_used_and_gone_afterwards() {
        let python = Python::new(Path::new("python3"), &[PathBuf::from("site")]).expect("a folder");
        let package = python.folder.path().join("kgen_peers");
        assert!(package.join("__main__.py").is_file() && package.join("peers/sdpa.py").is_file());
        let command = python.command();
        let arguments: Vec<_> = command.get_args().map(Path::new).collect();
        assert!(arguments[0] == package && arguments[1].is_absolute() && arguments[1].ends_with("site"), "{arguments:?}");
        drop(python);
        assert!(fs::metadata(package).is_err());
    }
}
