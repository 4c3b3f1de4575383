//! The parent's ends of a worker's pipes: its answer, and its printed output. Nothing here blocks, so a process that
//! keeps the other ends open cannot make kgen wait.

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::{Errno, ioctl_fionbio},
};
use std::{
    io::{self, ErrorKind, Read},
    os::fd::AsFd,
    process::{Child, ChildStderr, ChildStdout},
    time::Duration,
};

/// Bytes of a worker's printed output that are kept.
const QUOTED_BYTES: usize = 2000;

/// Bytes per read from a pipe.
const CHUNK_BYTES: usize = 1 << 16;

/// Maximum number of chunks read after the worker's end: more than a pipe holds, but bounded if a process outside the
/// worker's group lives on and keeps printing.
const LAST_CHUNKS: usize = 32;

/// A worker's answer and its printed output.
pub(super) struct Streams {
    answer: Option<ChildStdout>,
    printed: Option<ChildStderr>,
    /// Prefix of the answer's lines.
    prefix: Vec<u8>,
    /// The incomplete last line of the answer.
    line: Vec<u8>,
    /// The tail of the printed output.
    words: Vec<u8>,
}

impl Streams {
    /// Takes the pipes of `child`; lines of the answer begin with `token` and a space.
    pub fn of(child: &mut Child, token: String) -> io::Result<Self> {
        let (answer, printed) = (child.stdout.take(), child.stderr.take());
        for pipe in [answer.as_ref().map(AsFd::as_fd), printed.as_ref().map(AsFd::as_fd)].into_iter().flatten() {
            ioctl_fionbio(pipe, true)?;
        }
        Ok(Self { answer, printed, prefix: (token + " ").into_bytes(), line: Vec::new(), words: Vec::new() })
    }

    /// True if there may be more to read.
    pub fn are_open(&self) -> bool {
        self.answer.is_some() || self.printed.is_some()
    }

    /// Waits at most `pause` for something to read.
    pub fn wait(&self, pause: Duration) -> io::Result<()> {
        let pipes = [self.answer.as_ref().map(AsFd::as_fd), self.printed.as_ref().map(AsFd::as_fd)];
        let mut pipes: Vec<PollFd<'_>> =
            pipes.into_iter().flatten().map(|pipe| PollFd::from_borrowed_fd(pipe, PollFlags::IN)).collect();
        let pause = Timespec::try_from(pause).map_err(io::Error::other)?;
        match poll(&mut pipes, Some(&pause)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads at most one chunk from each pipe without blocking, and calls `hear` with each complete answer line, minus
    /// its prefix; lines without the prefix are dropped. Returns true if any byte was read from either pipe.
    pub fn read(&mut self, hear: &mut impl FnMut(&[u8])) -> bool {
        let mut chunk = vec![0; CHUNK_BYTES];
        let answered = read_chunk(&mut self.answer, &mut chunk);
        for piece in chunk[..answered].split_inclusive(|&byte| byte == b'\n') {
            self.line.extend_from_slice(piece);
            if self.line.ends_with(b"\n") {
                if let Some(event) = self.line[..self.line.len() - 1].strip_prefix(self.prefix.as_slice()) {
                    hear(event);
                }
                self.line.clear();
            }
        }
        let printed = read_chunk(&mut self.printed, &mut chunk);
        self.words.extend_from_slice(&chunk[..printed]);
        self.words.drain(..self.words.len().saturating_sub(QUOTED_BYTES));
        answered + printed > 0
    }

    /// Reads the rest, after the worker's end.
    pub fn drain(&mut self, hear: &mut impl FnMut(&[u8])) {
        for _ in 0..LAST_CHUNKS {
            if !self.read(hear) {
                break;
            }
        }
    }

    /// The tail of the printed output.
    pub fn last_words(&self) -> String {
        String::from_utf8_lossy(&self.words).trim().to_owned()
    }
}

/// Reads available bytes, at most the size of `chunk`; closes a pipe that is at its end or broken. Returns the number
/// of bytes read.
fn read_chunk(pipe: &mut Option<impl Read>, chunk: &mut [u8]) -> usize {
    let Some(open) = pipe else { return 0 };
    loop {
        match open.read(chunk) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return 0,
            Ok(0) | Err(_) => {
                *pipe = None;
                return 0;
            }
            Ok(bytes) => return bytes,
        }
    }
}
