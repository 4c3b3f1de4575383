//! The pinned files that kgen installs for itself, as NVIDIA publishes them on `PyPI`: CUDA 13.0's compiler, and the
//! disassembler for its output.

/// A set of wheels that kgen installs together into one folder, which appears when it is complete.
#[derive(Debug)]
pub struct Bundle {
    /// Name of the bundle in messages.
    pub what: &'static str,
    /// Prefix of the folder's name.
    prefix: &'static str,
    /// Wheels of the set.
    pub wheels: &'static [Wheel],
    /// A program in the bundle's `bin` whose presence implies that of all the others.
    pub program: &'static str,
    /// Size of the wheels (megabytes).
    pub download_megabytes: u32,
}

/// The compiler: driver, its host headers, the device compiler, the runtime, and the C++ headers that the runtime
/// includes.
pub const COMPILER: Bundle =
    Bundle { what: "CUDA's compiler", prefix: "cuda-13.0", wheels: &COMPILER_WHEELS, program: "nvcc", download_megabytes: 105 };

/// The disassembler. `PyPI` has no release 13.0 of it; this one reads the machine code of every target that 13.0
/// compiles (tested: `sm_75`, 80, 89, 90a, 100f, 120f, 121f).
pub const DISASSEMBLER: Bundle = Bundle {
    what: "CUDA's disassembler",
    prefix: "disassembler-13.5",
    wheels: &DISASSEMBLER_WHEELS,
    program: "nvdisasm",
    download_megabytes: 6,
};

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

const COMPILER_WHEELS: [Wheel; 5] = [
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

const DISASSEMBLER_WHEELS: [Wheel; 2] = [
    Wheel {
        package: "nvidia-cuda-nvdisasm",
        version: "13.5.37",
        sha256_x86_64: "d3fdbdd49fa53e2e4aacd3db8259d052bd2b049ececdcb69e92e083c6728e7ca",
        sha256_aarch64: "a3a8248074edb9fba63b74c38a5416b712a91ab09e70b8ab37186c3d293fc605",
    },
    Wheel {
        package: "nvidia-cuda-cuobjdump",
        version: "13.5.37",
        sha256_x86_64: "38780fee50863252a0b8926357faa91615ca1c8346490563f33a06100cd73f58",
        sha256_aarch64: "f48e3148535365161a268547b285fd01d92c80e4b457275375933825b5fc26b2",
    },
];

/// An architecture for which NVIDIA publishes these wheels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Architecture {
    /// 64-bit `x86`.
    X86_64,
    /// 64-bit Arm (SBSA): Grace, GB10.
    Aarch64,
}

impl Architecture {
    /// The architecture of this machine, if there are wheels for it.
    pub fn current() -> Option<Self> {
        match (std::env::consts::OS, std::env::consts::ARCH) {
            ("linux", "x86_64") => Some(Self::X86_64),
            ("linux", "aarch64") => Some(Self::Aarch64),
            _ => None,
        }
    }
}

impl Wheel {
    /// The requirement for pip.
    pub fn requirement(&self) -> String {
        format!("{}=={}", self.package, self.version)
    }

    /// Prefix of the downloaded file's name, before the platform tags (PEP 427 writes `_` for `-`).
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

impl Bundle {
    /// Name of its folder: `cuda-13.0.<12 hex digits>` of the pinned hashes, so that other pinned versions never use
    /// the same folder.
    pub fn folder_name(&self, architecture: Architecture) -> String {
        let mut hasher = blake3::Hasher::new();
        for wheel in self.wheels {
            hasher.update(wheel.requirement().as_bytes());
            hasher.update(wheel.sha256(architecture).as_bytes());
        }
        format!("{}.{}", self.prefix, &hasher.finalize().to_hex()[..12])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_recorded_hash_is_a_sha256_and_none_is_given_twice() {
        let mut seen = std::collections::HashSet::new();
        for wheel in COMPILER.wheels.iter().chain(DISASSEMBLER.wheels) {
            for architecture in [Architecture::X86_64, Architecture::Aarch64] {
                let hash = wheel.sha256(architecture);
                assert!(hash.len() == 64 && hash.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)), "{hash}");
                assert!(seen.insert(hash), "`{hash}` is recorded twice");
            }
        }
    }

    #[test]
    fn architectures_have_folders_of_their_own() {
        assert_ne!(COMPILER.folder_name(Architecture::X86_64), COMPILER.folder_name(Architecture::Aarch64));
        assert!(COMPILER.folder_name(Architecture::X86_64).starts_with("cuda-13.0."));
    }
}
