use super::{Request, Search};
use crate::{command::{CommandError, Context, Observer, session::Session}, kernel::Variant, lab::tune::Settings};

pub(super) fn run(_: &Request, _: &[Variant], _: &Settings, _: &Session, _: &Context, _: &dyn Observer) -> Result<(String, Vec<Search>), CommandError> {
    Err(CommandError::Usage("only with `--replay`".to_owned()))
}
