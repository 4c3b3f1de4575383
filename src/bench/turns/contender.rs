//! The parent's side of one contender: its worker, which lives as long as it has points, and what became of it.

use super::protocol::{Answer, Facts, Order, PROTOCOL};
use crate::{
    bench::Status,
    device::Round,
    isolate::{End, Heard, Session},
};
use std::{
    io,
    time::{Duration, Instant},
};

/// Why a contender has no numbers at a point.
pub(super) type Failure = (Status, String);

/// A contender in a worker of its own.
pub(super) struct Contender<'a> {
    /// Starts its worker.
    start: Box<dyn Fn() -> io::Result<Session> + 'a>,
    session: Option<Session>,
    /// The worker has said its first line.
    is_greeted: bool,
    /// The implementation with its version, from its worker's first line.
    pub library: String,
    /// Why it cannot be timed at all.
    missing: Option<Failure>,
    /// Its worker loads a point while others do.
    loads: bool,
    /// The point was ordered to be loaded.
    is_loading: bool,
    /// Time that a point may take, and the part that is left of it.
    time_limit: Duration,
    left: Duration,
    interrupted: &'a dyn Fn() -> bool,
}

impl<'a> Contender<'a> {
    pub fn new(
        start: Box<dyn Fn() -> io::Result<Session> + 'a>,
        time_limit: Duration,
        interrupted: &'a dyn Fn() -> bool,
    ) -> Self {
        let (session, library) = (None, String::new());
        let (is_greeted, loads, is_loading, missing, left) = (false, false, false, None, time_limit);
        Self { start, session, is_greeted, library, missing, loads, is_loading, time_limit, left, interrupted }
    }

    /// A contender that loads: its worker knows [`Order::Load`], as kgen's own do.
    pub fn that_loads(self) -> Self {
        Self { loads: true, ..self }
    }

    /// Starts the worker without waiting for it, if it does not run.
    pub fn wake(&mut self) {
        if self.session.is_none() && self.missing.is_none() {
            self.is_greeted = false;
            match (self.start)() {
                Ok(session) => self.session = Some(session),
                Err(error) => self.missing = Some((Status::Error, format!("its worker cannot be started: {error}"))),
            }
        }
    }

    /// Waits for the first line of the worker, which is started if it does not run.
    ///
    /// # Errors
    /// [`Failure`] if it cannot be timed at all.
    pub fn greet(&mut self) -> Result<(), Failure> {
        self.left = self.time_limit;
        self.wake();
        if !self.is_greeted && self.missing.is_none() {
            match self.hear() {
                Ok(Answer::Hello { protocol: PROTOCOL, library }) => (self.library, self.is_greeted) = (library, true),
                Ok(Answer::Hello { protocol, .. }) => {
                    let why = format!("its worker speaks version {protocol} of the protocol, and this kgen version {PROTOCOL}");
                    self.missing = Some((Status::Error, why));
                }
                Ok(Answer::Absent { message }) => self.missing = Some((Status::Absent, message)),
                Ok(other) => self.missing = Some(unexpected(&other)),
                Err(failure) => self.missing = Some(failure),
            }
        }
        let Some(missing) = self.missing.clone() else { return Ok(()) };
        self.session = None;
        Err(missing)
    }

    /// Has the point of this number loaded, if it loads, without waiting for it. [`loaded`](Self::loaded) follows.
    pub fn load(&mut self, point: usize) {
        self.is_loading = self.loads && self.greet().is_ok();
        if self.is_loading {
            self.say(Order::Load(point));
        }
    }

    /// Waits until it has loaded, if it was told to.
    ///
    /// # Errors
    /// [`Failure`].
    pub fn loaded(&mut self) -> Result<(), Failure> {
        if !std::mem::take(&mut self.is_loading) {
            return Ok(());
        }
        match self.hear()? {
            Answer::Loaded => Ok(()),
            other => Err(self.fail(&other)),
        }
    }

    /// Has the point of this number prepared. Launches that each time is the mean of.
    ///
    /// # Errors
    /// [`Failure`].
    pub fn prepare(&mut self, point: usize) -> Result<usize, Failure> {
        self.greet()?;
        match self.ask(Order::Prepare(point))? {
            Answer::Ready { launches } => Ok(launches),
            other => Err(self.fail(&other)),
        }
    }

    /// Has a round timed.
    ///
    /// # Errors
    /// [`Failure`].
    pub fn round(&mut self) -> Result<Round, Failure> {
        match self.ask(Order::Round)? {
            Answer::Round(round) if is_sound(&round) => Ok(round),
            other => Err(self.fail(&other)),
        }
    }

    /// Has the results checked and the memory freed, without waiting for it. [`finished`](Self::finished) follows.
    pub fn finish(&mut self) {
        self.say(Order::Finish);
    }

    /// What a worker reports that was told to finish.
    ///
    /// # Errors
    /// [`Failure`].
    pub fn finished(&mut self) -> Result<Facts, Failure> {
        match self.hear()? {
            Answer::Finished(facts) => Ok(facts),
            other => Err(self.fail(&other)),
        }
    }

    /// Ends the worker: there are no more points.
    pub fn dismiss(&mut self) {
        self.session = None;
    }

    fn say(&mut self, order: Order) {
        if let Some(session) = &mut self.session {
            session.say(&order);
        }
    }

    fn ask(&mut self, order: Order) -> Result<Answer, Failure> {
        self.say(order);
        self.hear()
    }

    /// The failure that an answer states. A worker that answers something else has lost its place and is ended.
    fn fail(&mut self, answer: &Answer) -> Failure {
        if let Answer::Failed { status, message } = answer
            && *status != Status::Ok
        {
            return (*status, message.clone());
        }
        self.session = None;
        unexpected(answer)
    }

    fn hear(&mut self) -> Result<Answer, Failure> {
        let Some(session) = &mut self.session else { return Err((Status::Crash, "its worker is gone".to_owned())) };
        let begun = Instant::now();
        let heard = session.hear(self.left, self.interrupted);
        self.left = self.left.saturating_sub(begun.elapsed());
        let failure = match heard {
            Ok(Heard::Line(line)) => match serde_json::from_slice(&line) {
                Ok(answer) => return Ok(answer),
                Err(error) => (Status::Error, format!("its worker's answer cannot be read: {error}")),
            },
            Ok(Heard::Ended(end, said)) => {
                let status = match end {
                    End::TimedOut => Status::Timeout,
                    End::Interrupted => Status::Error,
                    End::Exited(_) => Status::Crash,
                };
                let said = if said.is_empty() { said } else { format!("; it said: {said}") };
                (status, format!("{}{said}", end.words(self.time_limit)))
            }
            Err(error) => (Status::Error, format!("its worker cannot be waited for: {error}")),
        };
        self.session = None;
        Err(failure)
    }
}

/// True if all times are numbers above 0.
fn is_sound(round: &Round) -> bool {
    !round.microseconds.is_empty() && round.microseconds.iter().all(|time| time.is_finite() && *time > 0.0)
}

fn unexpected(answer: &Answer) -> Failure {
    (Status::Error, format!("its worker answered what was not asked: {answer:?}"))
}
