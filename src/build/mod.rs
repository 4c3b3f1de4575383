//! Turns rendered sources into objects and one shared library: in parallel, bounded by jobs and memory, through a
//! content-addressed cache. Independent of templates, GPUs and terminals; an [`Observer`] receives progress.
//!
//! ```text
//! Builder::open ─▶ compile(units) ─▶ BuildReport ─▶ link ─▶ write_report
//! ```
//!
//! Layout of the output folder: `obj/<name>.o`, `log/<name>.log`, `lib/libkgen.so`, `lib/manifest.json`, `report.json`,
//! `compile_commands.json`. [`emit`] writes the same command lines as a file for other schedulers instead.

mod builder;
mod cache;
mod compile;
mod database;
mod diagnostics;
mod emit;
mod error;
mod inspect;
mod key;
mod lines;
mod link;
mod manifest;
mod memory;
mod observer;
mod ptx;
mod ptxas;
mod report;
mod sass;
mod unit;
mod workplace;

pub use builder::{BuildOptions, Builder};
pub use cache::UNFINISHED as UNFINISHED_OBJECTS;
pub use emit::{Form as EmitForm, emit};
pub use error::BuildError;
pub use manifest::built;
pub use observer::{Observer, Outcome};
pub use report::{
    Artifact, BuildFailure, BuildReport, FailureKind, KernelResources, Library, REPORT_VERSION, Record, Share, records,
};
pub use sass::MachineCode;
pub use unit::Unit;
