//! `python/kgen_attn/abi.py`, rendered from `kgen.h`: the structures and constants of the C interface for ctypes.

use super::layout::{Declaration, declarations};
use itertools::Itertools;
use std::{collections::BTreeMap, fmt::Write};

/// Prefixes of the constants that form a dictionary, and the dictionary's name.
const TABLES: [(&str, &str); 5] =
    [("DTYPE", "DTYPES"), ("KIND", "KINDS"), ("FEATURE", "FEATURES"), ("PATH", "PATHS"), ("REDUCE", "REDUCTIONS")];

/// Torch's names of element types.
const DTYPES: [(&str, &str); 5] =
    [("fp16", "float16"), ("bf16", "bfloat16"), ("fp8_e4m3", "float8_e4m3fn"), ("fp32", "float32"), ("fp8_e5m2", "float8_e5m2")];

const BEGINNING: &str = r#""""Structures and constants of `kgen.h`, field for field. Needs no torch.

Rendered from the header; do not edit: `KGEN_UPDATE_ABI=1 cargo test --lib abi` renders it again.
"""

from __future__ import annotations

import ctypes
"#;

/// The module for `header`.
pub(super) fn module(header: &'static str) -> String {
    let mut text = BEGINNING.to_owned();
    let (tables, single): (Vec<_>, Vec<_>) = constants(header).partition(|(name, _)| table_of(name).is_some());
    text.push('\n');
    for (name, value) in single {
        let _ = writeln!(text, "{name} = {value}");
    }
    let tables = tables.into_iter().filter_map(|(name, value)| table_of(name).map(|(table, word)| (table, (word, value))));
    let tables: BTreeMap<&str, Vec<(String, u64)>> = tables.into_group_map().into_iter().collect();
    for (table, words) in tables {
        let _ = writeln!(text, "\n{table} = {{");
        text.extend(words.into_iter().map(|(word, value)| format!("    \"{word}\": {value},\n")));
        text.push_str("}\n");
    }
    for structure in structures(header) {
        let _ = write!(
            text,
            "\n\nclass {}(ctypes.Structure):\n    \"\"\"`{structure}`.\"\"\"\n\n    _fields_ = [\n",
            class(structure)
        );
        text.extend(declarations(header, structure).iter().map(|one| format!("        (\"{}\", {}),\n", one.name, ctype(one))));
        text.push_str("    ]\n");
    }
    text
}

/// Structures in the header's order, which declares nested ones first.
pub(super) fn structures(header: &str) -> impl Iterator<Item = &str> {
    let names = header.split("typedef struct ").skip(1).filter_map(|rest| rest.split_once(" {").map(|(name, _)| name));
    names.filter(|name| name.starts_with("kgen_") && !name.contains(' '))
}

/// `KGEN_FLAG_CAUSAL 1u` and `KGEN_KIND_FWD = 0`, without the prefix, in the order of the header.
fn constants(header: &str) -> impl Iterator<Item = (&str, u64)> {
    header.split("KGEN_").skip(1).filter_map(|text| {
        let end = text.find(|c: char| !(c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'))?;
        let (name, rest) = text.split_at(end);
        let rest = rest
            .strip_prefix(" = ")
            .or_else(|| rest.strip_prefix(' ').filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit())))?;
        let digits = rest.split(|c: char| !c.is_ascii_alphanumeric()).next()?.trim_end_matches('u');
        let value =
            digits.strip_prefix("0x").map_or_else(|| digits.parse().ok(), |digits| u64::from_str_radix(digits, 16).ok())?;
        Some((name, value))
    })
}

/// The dictionary of a constant, and its key there.
fn table_of(name: &str) -> Option<(&'static str, String)> {
    let (prefix, word) = name.split_once('_')?;
    let (_, table) = TABLES.iter().find(|(known, _)| *known == prefix)?;
    let word = word.to_lowercase();
    let torch = DTYPES.iter().find(|(known, _)| prefix == "DTYPE" && *known == word);
    Some((table, torch.map_or(word, |(_, torch)| (*torch).to_owned())))
}

/// `kgen_fwd_params` is `FwdParams`.
fn class(structure: &str) -> String {
    let words = structure.trim_start_matches("kgen_").split('_');
    words.map(|word| word[..1].to_uppercase() + &word[1..]).collect()
}

fn ctype(declaration: &Declaration) -> String {
    let base = match declaration.base {
        "char" if declaration.is_pointer => "ctypes.c_char_p".to_owned(),
        base if declaration.is_pointer && base.starts_with("kgen_") => format!("ctypes.POINTER({})", class(base)),
        base if declaration.is_pointer || base.ends_with("_launcher") => "ctypes.c_void_p".to_owned(),
        base if base.starts_with("kgen_") => class(base),
        "size_t" => "ctypes.c_size_t".to_owned(),
        base => format!("ctypes.c_{}", base.trim_end_matches("_t")),
    };
    declaration.count.map_or(base.clone(), |count| format!("{base} * {count}"))
}
