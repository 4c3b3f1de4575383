//! The package's metadata for pip.

use super::NAME;

/// Names in `.dist-info` and texts, without the record, for a version and a tag such as
/// `py3-none-manylinux_2_28_x86_64`.
pub(super) fn files(version: &str, tag: &str) -> Vec<(&'static str, String)> {
    vec![
        ("METADATA", metadata(version)),
        ("WHEEL", format!("Wheel-Version: 1.0\nGenerator: kgen ({version})\nRoot-Is-Purelib: false\nTag: {tag}\n")),
        ("entry_points.txt", format!("[vllm.general_plugins]\nkgen = {NAME}.vllm:register\n")),
        ("licenses/LICENSE-APACHE", include_str!("../../LICENSE-APACHE").to_owned()),
        ("licenses/LICENSE-MIT", include_str!("../../LICENSE-MIT").to_owned()),
    ]
}

/// Torch is an extra: the package can print its contents without it, and callers already have a torch, of a build that
/// pip would not choose.
fn metadata(version: &str) -> String {
    format!(
        "Metadata-Version: 2.4\n\
         Name: {NAME}\n\
         Version: {version}\n\
         Summary: Flash Attention kernels made by kgen, with FlashAttention's functions for PyTorch\n\
         License-Expression: MIT OR Apache-2.0\n\
         License-File: LICENSE-APACHE\n\
         License-File: LICENSE-MIT\n\
         Requires-Python: >=3.9\n\
         Provides-Extra: torch\n\
         Requires-Dist: torch>=2.4; extra == \"torch\"\n\
         Description-Content-Type: text/markdown\n\
         \n\
         Attention kernels for NVIDIA GPUs, compiled ahead of time. `python -m {NAME}` prints which.\n"
    )
}
