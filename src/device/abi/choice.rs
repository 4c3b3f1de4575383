//! `kgen_choice` and `kgen_candidate` of `kgen.h`: the dispatcher's report on the paths that it compares.

use std::{
    ffi::{c_char, c_void},
    ptr,
};

/// `kgen_explain_choice`: parameters in, the choice out; returns a `KGEN_*` code.
pub(in crate::device) type Explain = unsafe extern "C" fn(*const c_void, *mut Choice) -> i32;

/// Upper bound on the number of candidates in any version.
const CAPACITY: u16 = 64;

/// `kgen_candidate`, version 6.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(in crate::device) struct Candidate {
    path: i32,
    num_splits: i32,
    variant: *const c_char,
    excluded: *const c_char,
    workspace_bytes: usize,
    predicted_ns: f64,
    launch_ns: f64,
    tile_ns: f64,
    chain_ns: f64,
    step_ns: f64,
    memory_ns: f64,
    combine_ns: f64,
    scheduler_ns: f64,
    by_last_block: i32,
    reserved: i32,
}

/// `kgen_choice`, version 3.
#[derive(Debug)]
#[repr(C)]
pub(in crate::device) struct Choice {
    struct_size: u32,
    candidate_size: u32,
    candidates: *mut Candidate,
    capacity: i32,
    count: i32,
    chosen: i32,
    multiprocessors: i32,
}

/// The paths of a forward call, by their numbers in `kgen.h` (`KGEN_PATH_*`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Paths {
    /// The paths that it can take; some may turn out to be unable to read the call's tensors.
    pub able: Vec<i32>,
    /// The path that it tries first; `None` if it fails.
    pub chosen: Option<i32>,
}

/// `KGEN_PATH_SHORT`.
pub const PATH_SHORT: i32 = 1;

/// `KGEN_PATH_SPLIT`; the paths from this one to [`PATH_PACKED`] may split the keys.
pub const PATH_SPLIT: i32 = 2;

/// `KGEN_PATH_PACKED`.
pub const PATH_PACKED: i32 = 5;

impl Paths {
    /// The paths that `explain` writes into a choice.
    pub(in crate::device) fn explained(explain: &mut dyn FnMut(&mut Choice)) -> Self {
        let empty = Candidate {
            path: 0,
            num_splits: 0,
            variant: ptr::null(),
            excluded: ptr::null(),
            workspace_bytes: 0,
            predicted_ns: 0.0,
            launch_ns: 0.0,
            tile_ns: 0.0,
            chain_ns: 0.0,
            step_ns: 0.0,
            memory_ns: 0.0,
            combine_ns: 0.0,
            scheduler_ns: 0.0,
            by_last_block: 0,
            reserved: 0,
        };
        let mut candidates = [empty; CAPACITY as usize];
        let mut choice = Choice {
            struct_size: size_of::<Choice>() as u32,
            candidate_size: size_of::<Candidate>() as u32,
            candidates: candidates.as_mut_ptr(),
            capacity: CAPACITY.into(),
            count: 0,
            chosen: -1,
            multiprocessors: 0,
        };
        explain(&mut choice);
        let filled = &candidates[..usize::try_from(choice.count).unwrap_or(0).min(CAPACITY.into())];
        Self {
            able: filled.iter().filter(|candidate| candidate.excluded.is_null()).map(|candidate| candidate.path).collect(),
            chosen: usize::try_from(choice.chosen).ok().and_then(|chosen| filled.get(chosen)).map(|candidate| candidate.path),
        }
    }
}

/// Offsets of all fields, by their names in C, and the sizes, for the test that compares them with the header.
#[cfg(test)]
pub(super) fn layouts() -> [Layout; 2] {
    use super::tests::each;
    use std::mem::offset_of;
    let candidate = each!(Candidate: path, num_splits, variant, excluded, workspace_bytes, predicted_ns, launch_ns, tile_ns,
        chain_ns, step_ns, memory_ns, combine_ns, scheduler_ns, by_last_block, reserved);
    let choice = each!(Choice: struct_size, candidate_size, candidates, capacity, count, chosen, multiprocessors);
    [("kgen_candidate", candidate, size_of::<Candidate>()), ("kgen_choice", choice, size_of::<Choice>())]
}

/// A structure's name, its fields' offsets, and its size.
#[cfg(test)]
type Layout = (&'static str, Vec<(String, usize)>, usize);
