//! Head dims in the JSON of a request: `128`, or `"192_128"` if V and O differ from Q and K.

use crate::kernel::HeadDim;
use serde::{Deserialize, Deserializer, Serializer, de::Error};

#[derive(Deserialize)]
#[serde(untagged)]
enum Word {
    Number(i64),
    Text(String),
}

/// Writes head dims as a list of texts, for `serialize_with`.
///
/// # Errors
/// The serialiser's.
pub(super) fn serialize<S: Serializer>(head_dims: &[HeadDim], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(head_dims.iter().map(ToString::to_string))
}

/// Reads head dims from a list of numbers and texts, for `deserialize_with`.
///
/// # Errors
/// The deserialiser's, and a head dim that no kernel can have.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<HeadDim>, D::Error> {
    let read = |word: Word| match word {
        Word::Number(number) => number.to_string().parse(),
        Word::Text(text) => text.parse(),
    };
    Vec::deserialize(deserializer)?.into_iter().map(read).collect::<Result<_, _>>().map_err(D::Error::custom)
}
