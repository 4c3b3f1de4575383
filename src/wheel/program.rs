//! The kgen program as a wheel: `pip install` puts only the binary into the environment's `bin`.

use super::{Wheel, WheelError, archive, platform};

/// Name of the distribution.
const NAME: &str = "kgen";

/// Packs `binary`, the content of a kgen executable of this version.
///
/// # Errors
/// [`WheelError::Program`] if it is not an executable, [`WheelError::Platform`] if it needs libraries that a wheel may
/// not rely on.
pub fn program(binary: &[u8]) -> Result<Wheel, WheelError> {
    if binary.get(..4) != Some(b"\x7fELF") {
        return Err(WheelError::Program);
    }
    let platform = platform::tag(binary).map_err(WheelError::Platform)?;
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let tag = format!("py3-none-{platform}");
    let information = format!("{NAME}-{version}.dist-info");
    let mut entries = vec![archive::Entry::binary(format!("{NAME}-{version}.data/scripts/{NAME}"), binary)];
    let texts = [
        ("METADATA", metadata(&version)),
        ("WHEEL", format!("Wheel-Version: 1.0\nGenerator: kgen ({version})\nRoot-Is-Purelib: false\nTag: {tag}\n")),
        ("licenses/LICENSE-APACHE", include_str!("../../LICENSE-APACHE").to_owned()),
        ("licenses/LICENSE-MIT", include_str!("../../LICENSE-MIT").to_owned()),
    ];
    entries.extend(texts.map(|(name, text)| archive::Entry::text(format!("{information}/{name}"), text)));
    let bytes = archive::write(entries, &format!("{information}/RECORD"))?;
    Ok(Wheel { file_name: format!("{NAME}-{version}-{tag}.whl"), version, platform, bytes })
}

fn metadata(version: &str) -> String {
    format!(
        "Metadata-Version: 2.4\n\
         Name: {NAME}\n\
         Version: {version}\n\
         Summary: {}\n\
         License-Expression: MIT OR Apache-2.0\n\
         License-File: LICENSE-APACHE\n\
         License-File: LICENSE-MIT\n\
         Project-URL: Repository, {}\n\
         Project-URL: Documentation, {}\n\
         Description-Content-Type: text/markdown\n\
         \n\
         The `kgen` command. It installs CUDA's compiler by itself when it needs it; `kgen doctor` says what it finds.\n",
        env!("CARGO_PKG_DESCRIPTION"),
        env!("CARGO_PKG_REPOSITORY"),
        concat!(env!("CARGO_PKG_REPOSITORY"), "/tree/main/docs"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_no_program() {
        let error = program(b"#!/bin/sh\n").expect_err("a script").to_string();
        assert!(error.contains("no executable"), "{error}");
    }
}
