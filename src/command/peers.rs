//! The peers that a machine has.

use super::{CommandError, Context};
use crate::{
    bench::{
        peers::{PEERS, Python},
        turns,
    },
    text::{suggestion, ticked},
};
use serde::{Deserialize, Serialize};
use std::{
    path::{Path, PathBuf},
    time::Duration,
};

/// The word for all peers.
const ALL: &str = "all";

/// Time that a peer has for loading its libraries.
const TIME_LIMIT: Duration = Duration::from_secs(300);

/// Request of a list of peers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Request {
    /// Python that runs the peers; `None` for `python3`.
    pub python: Option<PathBuf>,
    /// Folders that hold libraries of peers.
    pub sites: Vec<PathBuf>,
}

/// The peers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    /// All of them.
    pub peers: Vec<Peer>,
}

/// A peer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Peer {
    /// The name.
    pub name: &'static str,
    /// What it is.
    pub about: &'static str,
    /// The implementation with its version; null if it cannot be used here.
    pub library: Option<String>,
    /// Why it cannot be used here.
    pub absent: Option<String>,
}

/// Loads every peer, each in a process of its own.
///
/// # Errors
/// [`CommandError`] if a folder is missing or Python cannot be started.
pub fn run(request: &Request, context: &Context) -> Result<Outcome, CommandError> {
    let python = python(request.python.as_deref(), &request.sites)?;
    let names = known(&[ALL.to_owned()])?;
    let found = turns::look_for(&names, &python, TIME_LIMIT, &|| context.cancel.requested());
    if context.cancel.requested() {
        return Err(CommandError::INTERRUPTED);
    }
    let peer = |((name, about), found): ((&'static str, &'static str), Result<String, _>)| {
        let (library, absent) = match found {
            Ok(library) => (Some(library), None),
            Err((_, message)) => (None, Some(message)),
        };
        Peer { name, about, library, absent }
    };
    Ok(Outcome { peers: PEERS.into_iter().zip(found).map(peer).collect() })
}

/// The names of peers that a request states, without duplicates.
///
/// # Errors
/// [`CommandError::Usage`] if there is no such peer.
pub(super) fn known(stated: &[String]) -> Result<Vec<String>, CommandError> {
    let names = PEERS.map(|(name, _)| name);
    if let Some(unknown) = stated.iter().find(|name| *name != ALL && !names.contains(&name.as_str())) {
        let meant = suggestion(unknown, &names).map_or_else(String::new, |meant| format!("; {meant}"));
        return Err(CommandError::Usage(format!("there is no peer `{unknown}`{meant}; known: {}, `{ALL}`", ticked(&names))));
    }
    let is_stated = |name: &&str| stated.iter().any(|stated| stated == name || stated == ALL);
    Ok(names.into_iter().filter(|name| is_stated(name)).map(ToOwned::to_owned).collect())
}

/// Python with the package of the peers.
///
/// # Errors
/// [`CommandError::Usage`] if a folder is missing, [`CommandError::Environment`] if the package cannot be written.
pub(super) fn python(program: Option<&Path>, sites: &[PathBuf]) -> Result<Python, CommandError> {
    if let Some(missing) = sites.iter().find(|site| !site.is_dir()) {
        let why = "is no folder; `--site` names folders that hold libraries of peers";
        return Err(CommandError::Usage(format!("`{}` {why}", missing.display())));
    }
    Python::new(program.unwrap_or(Path::new("python3")), sites).map_err(|error| {
        CommandError::Environment(format!("cannot write the workers of the peers to a temporary folder: {error}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_known_by_name_and_all_is_all_of_them() {
        let of = |stated: &[&str]| known(&stated.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(of(&["fa3", "sdpa-flash", "fa3"]).expect("they are known"), ["sdpa-flash", "fa3"]);
        assert_eq!(of(&["all"]).expect("they are known").len(), PEERS.len());
        let error = of(&["sdpa-flesh"]).expect_err("no peer").to_string();
        assert!(error.contains("did you mean `sdpa-flash`?"), "{error}");
    }
}
