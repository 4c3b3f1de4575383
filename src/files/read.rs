//! Reads regular files only: opening a named pipe waits for a writer, and a device may have no end.

use std::{
    fs::{self, File, FileType},
    io::{self, ErrorKind, Read},
    os::unix::fs::{FileTypeExt, OpenOptionsExt},
    path::Path,
};

/// Opens a file for reading, without blocking.
///
/// # Errors
/// The system's reason, or the kind of object at the path.
pub fn open(path: &Path) -> io::Result<File> {
    // Checked before opening, which has effects on some devices; and again after, since the object may have changed.
    refuse_others(fs::metadata(path)?.file_type())?;
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    refuse_others(file.metadata()?.file_type())?;
    Ok(file)
}

/// The content of a file.
///
/// # Errors
/// The errors of [`open`].
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The content of a file; `None` if nothing exists at the path.
///
/// # Errors
/// The errors of [`open`], and [`ErrorKind::InvalidData`] for a dangling link, which may be the user's.
pub fn read_if_there(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => dangling(path).map_or(Ok(None), Err),
        Err(error) => Err(error),
    }
}

/// Creates a folder and its parents, unless it exists.
///
/// # Errors
/// The system's reason; [`ErrorKind::InvalidData`] if one of them is a dangling link.
pub fn make_folder(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path).map_err(|error| path.ancestors().find_map(dangling).unwrap_or(error))
}

/// The error for `path`, if it is a dangling link.
fn dangling(path: &Path) -> Option<io::Error> {
    let leads_to = fs::read_link(path).ok()?;
    if path.exists() {
        return None;
    }
    let (path, leads_to) = (path.display(), leads_to.display());
    let said = format!("`{path}` is a link to `{leads_to}`, which is not there; make that, or remove the link");
    Some(io::Error::new(ErrorKind::InvalidData, said))
}

/// The content of a text file, without the mark that some editors put before UTF-8 (a byte order mark): no language
/// that is read here has such a character.
///
/// # Errors
/// The errors of [`open`], and [`ErrorKind::InvalidData`] if it is not UTF-8.
pub fn read_to_string(path: &Path) -> io::Result<String> {
    let bytes = read(path)?;
    let text = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&bytes).to_vec();
    String::from_utf8(text).map_err(|_| io::Error::new(ErrorKind::InvalidData, "it is not UTF-8 text"))
}

/// Refuses anything but regular files.
///
/// # Errors
/// The kind of object.
pub fn refuse_others(what: FileType) -> io::Result<()> {
    let word = match what {
        file if file.is_file() => return Ok(()),
        folder if folder.is_dir() => return Err(io::Error::from(ErrorKind::IsADirectory)),
        pipe if pipe.is_fifo() => "a pipe",
        socket if socket.is_socket() => "a socket",
        _ => "a device",
    };
    Err(io::Error::new(ErrorKind::InvalidInput, format!("it is {word}, and no file")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_pipe_a_device_and_a_folder_are_refused_at_once_and_a_file_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let said = |path: &Path| read(path).unwrap_err().to_string();
        assert_eq!(said(&pipe), "it is a pipe, and no file");
        assert_eq!(said(Path::new("/dev/zero")), "it is a device, and no file");
        assert_eq!(read(folder.path()).unwrap_err().kind(), ErrorKind::IsADirectory);
        assert_eq!(read(&folder.path().join("none")).unwrap_err().kind(), ErrorKind::NotFound);
        let file = folder.path().join("file");
        fs::write(&file, b"\xffx").unwrap();
        assert_eq!(read(&file).unwrap(), b"\xffx");
        assert_eq!(read_to_string(&file).unwrap_err().kind(), ErrorKind::InvalidData);
        fs::write(&file, "\u{feff}a\u{feff}").unwrap();
        assert_eq!(read_to_string(&file).unwrap(), "a\u{feff}");
    }

    #[test]
    fn a_link_that_leads_nowhere_is_named_and_not_taken_for_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (link, file) = (folder.path().join("link"), folder.path().join("file"));
        std::os::unix::fs::symlink("nowhere", &link).unwrap();
        let expected = format!("`{}` is a link to `nowhere`, which is not there; make that, or remove the link", link.display());
        assert_eq!(read_if_there(&link).unwrap_err().to_string(), expected);
        for path in [link.clone(), link.join("below")] {
            assert_eq!(make_folder(&path).unwrap_err().to_string(), expected);
        }
        assert_eq!(read_if_there(&file).unwrap(), None);
        fs::write(&file, "text").unwrap();
        assert_eq!(read_if_there(&file).unwrap().unwrap(), b"text");
        assert_eq!(make_folder(&file).unwrap_err().kind(), ErrorKind::AlreadyExists);
        make_folder(&folder.path().join("a/b")).unwrap();
        make_folder(&folder.path().join("a/b")).unwrap();
    }
}
