//! Parsers of names; completions offer the names of the built-in grid.

use crate::grid::Grid;
use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use std::ffi::OsStr;

/// Parser of variant names; completions offer the names of the built-in grid.
#[derive(Clone, Copy)]
pub(super) struct NameParser;

impl TypedValueParser for NameParser {
    type Value = String;

    fn parse_ref(&self, command: &clap::Command, arg: Option<&clap::Arg>, value: &OsStr) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let names: Vec<PossibleValue> =
            Grid::builtin().variants().iter().map(|variant| PossibleValue::new(variant.name())).collect();
        Some(Box::new(names.into_iter()))
    }
}

/// Parser of set names; completions offer the names of the built-in grid.
#[derive(Clone, Copy)]
pub(super) struct SetParser;

impl TypedValueParser for SetParser {
    type Value = String;

    fn parse_ref(&self, command: &clap::Command, arg: Option<&clap::Arg>, value: &OsStr) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let sets: Vec<PossibleValue> =
            Grid::builtin().sets().iter().map(|set| PossibleValue::new(set.name.clone()).help(set.description.clone())).collect();
        Some(Box::new(sets.into_iter()))
    }
}
