//! Texts that people write, and messages about errors in them: shared by all readers of such texts.

mod amount;
mod finding;
mod near;
mod toml;

pub(crate) use self::toml::{explain, unknown_key, unlike};
pub(crate) use amount::{count, size};
pub(crate) use finding::{Finding, Lines};
pub use near::suggestion;
pub(crate) use near::ticked;
