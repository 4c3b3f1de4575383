//! A worker that is told what to do line by line: it stays alive between lines, while others have their turn.

use super::{End, Envelope, LOOK_EVERY, NEAR_THE_END, has_ended, strays, streams::Streams};
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Serialize;
use std::{
    collections::VecDeque,
    io::{self, Write},
    os::unix::process::CommandExt,
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

/// A running worker. It is killed, with all processes that it started, when this is dropped.
pub struct Session {
    child: Child,
    stdin: Option<ChildStdin>,
    streams: Streams,
    mark: String,
    lines: VecDeque<Vec<u8>>,
    ended: Option<End>,
}

/// What was heard of a worker.
#[derive(Debug)]
pub enum Heard {
    /// A line of its answer, without the token.
    Line(Vec<u8>),
    /// It ended, or was killed; the tail of its printed output.
    Ended(End, String),
}

impl Session {
    /// Starts `command` and sends it `request`.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(mut command: Command, request: &impl Serialize) -> io::Result<Self> {
        let token = format!("{:032x}", rand::random::<u128>());
        // The mark differs from the token, which a kernel must not be able to read.
        let mark = format!("{:032x}", rand::random::<u128>());
        // A separate group: a terminal's Ctrl-C then reaches kgen first, which ends its workers itself.
        command.env(strays::VARIABLE, &mark).process_group(0);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let stdin = child.stdin.take();
        let streams = Streams::of(&mut child, token.clone())?;
        let mut session = Self { child, stdin, streams, mark, lines: VecDeque::new(), ended: None };
        session.say(&Envelope { token, request });
        Ok(session)
    }

    /// Sends a line. If the worker is gone already, [`hear`](Self::hear) reports that.
    pub fn say(&mut self, message: &impl Serialize) {
        let Ok(mut line) = serde_json::to_vec(message) else { return };
        line.push(b'\n');
        let sent = self.stdin.as_mut().map(|stdin| stdin.write_all(&line));
        if !matches!(sent, Some(Ok(()))) {
            self.stdin = None;
        }
    }

    /// Closes the worker's standard input: there is nothing more to do.
    pub fn dismiss(&mut self) {
        self.stdin = None;
    }

    /// Waits for a line or the worker's end. At `limit`, or if `interrupted` becomes true, the worker is killed.
    ///
    /// # Errors
    /// It cannot be waited for.
    pub fn hear(&mut self, limit: Duration, interrupted: &dyn Fn() -> bool) -> io::Result<Heard> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(line) = self.lines.pop_front() {
                return Ok(Heard::Line(line));
            }
            if let Some(end) = self.ended {
                return Ok(Heard::Ended(end, self.streams.last_words()));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            self.streams.wait(left.min(if self.streams.are_open() { LOOK_EVERY } else { NEAR_THE_END }))?;
            let lines = &mut self.lines;
            self.streams.read(&mut |line| lines.push_back(line.to_vec()));
            let killed = match () {
                () if has_ended(&self.child)? => None,
                () if interrupted() => Some(End::Interrupted),
                () if left.is_zero() => Some(End::TimedOut),
                () => continue,
            };
            // Its last lines may still be in the pipe.
            let status = self.close()?;
            self.ended = Some(killed.unwrap_or(End::Exited(status)));
        }
    }

    /// Kills what is left of the worker and reads the rest of its answer.
    fn close(&mut self) -> io::Result<ExitStatus> {
        // It is not reaped yet, so its id cannot belong to another group; if the group is gone, that is the goal.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let status = self.child.wait()?;
        strays::kill(&self.mark);
        let lines = &mut self.lines;
        self.streams.drain(&mut |line| lines.push_back(line.to_vec()));
        Ok(status)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.ended.is_none() {
            // Nothing can be reported here; a process that is gone is the goal.
            let _ = self.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Prints a line without the token, then answers each line with the token.
    const ECHO: &str = r#"IFS= read -r envelope; token=${envelope#*'"token":"'}; token=${token%%'"'*}; echo stray
        while read -r word; do echo "$token $word!"; done; echo oh >&2; exit 3"#;

    fn shell(script: &str) -> Session {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Session::start(command, &"request").expect("it starts")
    }

    #[test]
    fn lines_go_both_ways_and_those_before_the_end_are_heard() {
        let mut session = shell(ECHO);
        for word in [1, 2] {
            session.say(&word);
            let heard = session.hear(5 * SECOND, &|| false).expect("it is there");
            assert!(matches!(&heard, Heard::Line(line) if *line == format!("{word}!").into_bytes()), "{heard:?}");
        }
        session.say(&3);
        session.dismiss();
        let heard = [(); 3].map(|()| session.hear(5 * SECOND, &|| false).expect("it is there"));
        assert!(matches!(&heard[0], Heard::Line(line) if line == b"3!"), "{heard:?}");
        for end in &heard[1..] {
            assert!(matches!(end, Heard::Ended(End::Exited(_), said) if said == "oh"), "{end:?}");
        }
    }

    #[test]
    fn one_that_hangs_is_killed_at_the_limit_and_one_that_is_interrupted_at_once() {
        let mut slow = shell("sleep 60");
        assert!(matches!(slow.hear(SECOND / 10, &|| false), Ok(Heard::Ended(End::TimedOut, _))));
        let mut unwanted = shell("sleep 60");
        assert!(matches!(unwanted.hear(60 * SECOND, &|| true), Ok(Heard::Ended(End::Interrupted, _))));
    }
}
