//! Paths in JSON: its strings are Unicode, paths need not be.

use serde::Serializer;
use std::path::Path;

/// Serialises a path as a string, for `serialize_with`. Invalid UTF-8 becomes U+FFFD.
///
/// # Errors
/// The errors of the serialiser.
pub fn lossy<S: Serializer>(path: impl AsRef<Path>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&path.as_ref().display())
}

/// Like [`lossy`], for a path that may be absent.
///
/// # Errors
/// The errors of the serialiser.
pub fn lossy_option<S: Serializer>(path: &Option<impl AsRef<Path>>, serializer: S) -> Result<S::Ok, S::Error> {
    match path {
        Some(path) => lossy(path, serializer),
        None => serializer.serialize_none(),
    }
}

/// Serialization of a path for another kgen process, for `with`: its bytes are preserved, as text if
/// they are UTF-8, otherwise as numbers.
pub mod exact {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::{
        ffi::{OsStr, OsString},
        os::unix::ffi::{OsStrExt, OsStringExt},
        path::{Path, PathBuf},
    };

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Text(PathBuf),
        Bytes(Vec<u8>),
    }

    /// Writes it.
    ///
    /// # Errors
    /// The errors of the serialiser.
    pub fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
        match path.to_str() {
            Some(text) => text.serialize(serializer),
            None => OsStr::new(path).as_bytes().serialize(serializer),
        }
    }

    /// Reads it.
    ///
    /// # Errors
    /// The value is neither text nor bytes.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
        Ok(match Written::deserialize(deserializer)? {
            Written::Text(path) => path,
            Written::Bytes(bytes) => PathBuf::from(OsString::from_vec(bytes)),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};
    use std::{
        ffi::OsString,
        os::unix::ffi::OsStringExt,
        path::{Path, PathBuf},
    };

    #[derive(Serialize)]
    struct Shown<'a> {
        #[serde(serialize_with = "super::lossy")]
        path: &'a Path,
        #[serde(serialize_with = "super::lossy_option")]
        other: Option<PathBuf>,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Sent {
        #[serde(with = "super::exact")]
        path: PathBuf,
    }

    #[test]
    fn a_path_that_is_no_text_is_shown_all_the_same_and_sent_without_a_change() {
        let path = PathBuf::from(OsString::from_vec(b"a/\xff/b".to_vec()));
        let shown = serde_json::to_string(&Shown { path: &path, other: None }).unwrap();
        assert_eq!(shown, "{\"path\":\"a/\u{fffd}/b\",\"other\":null}");
        for path in [path, PathBuf::from("plain")] {
            let sent = serde_json::to_string(&Sent { path: path.clone() }).unwrap();
            assert_eq!(serde_json::from_str::<Sent>(&sent).unwrap(), Sent { path });
        }
    }
}
