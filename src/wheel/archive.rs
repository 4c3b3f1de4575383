//! The wheel's file: a zip archive whose bytes depend only on its contents, and the record of its files.

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use sha2::{Digest, Sha256};
use std::{
    borrow::Cow,
    fmt::Write as _,
    io::{Cursor, Write as _},
};
use zip::{CompressionMethod, DateTime, ZipWriter, result::ZipError, write::SimpleFileOptions};

/// A file of the wheel.
pub(super) struct Entry<'a> {
    path: String,
    content: Cow<'a, [u8]>,
    permissions: u32,
}

impl<'a> Entry<'a> {
    /// A text file.
    pub(super) fn text(path: String, text: impl Into<Cow<'a, str>>) -> Self {
        let content = match text.into() {
            Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
            Cow::Owned(text) => Cow::Owned(text.into_bytes()),
        };
        Self { path, content, permissions: 0o644 }
    }

    /// Path in the wheel.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// Content of the file.
    pub(super) fn content(&self) -> &[u8] {
        &self.content
    }

    /// A shared library or a program.
    pub(super) fn binary(path: String, content: &'a [u8]) -> Self {
        Self { path, content: Cow::Borrowed(content), permissions: 0o755 }
    }
}

/// The archive of `entries`, in order, followed by the record at path `record`, which lists them all.
///
/// # Errors
/// [`ZipError`], only if memory runs out.
pub(super) fn write(mut entries: Vec<Entry<'_>>, record: &str) -> Result<Vec<u8>, ZipError> {
    entries.push(Entry::text(record.to_owned(), lines(&entries, record)));
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    for Entry { path, content, permissions } in &entries {
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Deflated)
            .compression_level(Some(6))
            .last_modified_time(DateTime::default())
            .unix_permissions(*permissions);
        archive.start_file(path.as_str(), options)?;
        archive.write_all(content)?;
    }
    Ok(archive.finish()?.into_inner())
}

/// Path, hash and size of each file, by the rules for wheels: SHA-256 in URL-safe base64, without padding; the record's
/// own line has neither.
fn lines(entries: &[Entry<'_>], record: &str) -> String {
    let mut text = String::new();
    for entry in entries {
        let hash = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(&entry.content));
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{},sha256={hash},{}", entry.path, entry.content.len());
    }
    text + record + ",,\n"
}
