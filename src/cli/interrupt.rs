//! Handling of Ctrl-C and signals.

use crate::toolchain::Cancel;
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};
use std::sync::{
    OnceLock,
    atomic::{AtomicI32, Ordering},
};

/// The signal that interrupted this process last; Ctrl-C if none did.
static SIGNAL: AtomicI32 = AtomicI32::new(SIGINT);

/// The exit code of an interrupted process, as shells report it: 130 after Ctrl-C, 143 after SIGTERM, 129 after SIGHUP.
pub(super) fn exit_code() -> u8 {
    u8::try_from(128 + SIGNAL.load(Ordering::SeqCst)).unwrap_or(130)
}

/// A flag that Ctrl-C sets from now on; the work then stops, removes unfinished files and ends. Running compilers
/// finish first, unless a second Ctrl-C, or SIGTERM or SIGHUP, whose senders do not wait for minutes, arrives. A
/// further signal ends the process at once. Until this function is called, Ctrl-C ends the process by default.
pub(super) fn cancel_on_ctrl_c() -> Cancel {
    static CANCEL: OnceLock<Cancel> = OnceLock::new();
    let make = || {
        let cancel = Cancel::default();
        // If no handler can be set, Ctrl-C keeps its default action, which is safe too: files are written atomically.
        if let Ok(mut signals) = Signals::new([SIGINT, SIGTERM, SIGHUP]) {
            let flag = cancel.clone();
            std::thread::spawn(move || {
                for signal in signals.forever() {
                    SIGNAL.store(signal, Ordering::SeqCst);
                    match signal {
                        _ if flag.insisted() => std::process::exit(exit_code().into()),
                        SIGINT if !flag.requested() => flag.request(),
                        _ => flag.insist(),
                    }
                }
            });
        }
        cancel
    };
    CANCEL.get_or_init(make).clone()
}
