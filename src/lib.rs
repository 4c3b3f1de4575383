//! kgen expands a grid of head dim × dtype × mask × GPU into complete, readable CUDA Flash Attention kernels, compiles
//! them, proves them on a GPU or on an emulator, and times them.
//!
//! Data flows one way, and each step's result is a plain value that can be printed as JSON:
//!
//! ```text
//! variants.toml ─▶ Grid ─▶ Variant ─▶ Plan ─▶ Source ─▶ Artifact ─▶ Verdict ─▶ Measurement
//!                  grid/    grid/     plan/   render/   build/      check/      bench/
//! ```
//!
//! `grid`, `plan` and `render` are independent of nvcc, GPUs and terminals. `command` has a function for each command,
//! for `cli` and for programs; only `cli` prints.

#[macro_use]
mod pages;

pub mod bench;
pub mod build;
pub mod check;
pub mod cli;
pub mod command;
pub mod device;
pub mod expression;
pub mod family;
pub mod files;
pub mod grid;
pub mod isolate;
pub mod jobs;
pub mod kernel;
pub mod lab;
pub mod plan;
pub mod probe;
pub mod profile;
pub mod render;
pub mod text;
pub mod toolchain;
pub mod wheel;
