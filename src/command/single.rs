//! Kernels as libraries of their own: candidates of one kernel, and kernels edited by hand, define the same launcher as
//! the kernel that they replace.

use crate::{
    bench::Made,
    build::{self, BuildOptions, Builder, FailureKind, built},
    command::{
        CommandError, Context,
        build::{Tools, made::kernel_units},
        edited::Edited,
        session::Session,
    },
    files::content_hash,
    lab::{Status, tune::Failure},
    plan::Plan,
    render::{self, Prune},
};
use serde_json::{Map, Value};
use std::{
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    thread,
    time::Duration,
};

/// Time limit of a compiler.
const TIME_LIMIT: Duration = Duration::from_secs(600);

/// Characters of a text's hash in the name of a candidate's folder.
const SHORT: usize = 16;

/// Compilers, and the folder for what they make.
pub(in crate::command) struct Compiler<'a> {
    pub tools: &'a Tools,
    pub session: &'a Session,
    pub context: &'a Context,
    pub folder: &'a Path,
    pub offline: bool,
}

/// A compiled kernel.
pub(in crate::command) struct Compiled {
    pub plan: Plan,
    pub made: Made,
    /// The library of this kernel alone.
    pub library: PathBuf,
    /// The library's manifest entry.
    pub built: Map<String, Value>,
    /// Registers of a thread.
    pub registers: u32,
    /// Its part of the seconds in which it was compiled with others.
    pub compile_s: f64,
}

/// Ignores the progress of a single candidate.
struct Quiet;

impl build::Observer for Quiet {}

impl Compiler<'_> {
    /// Compiles candidates, at most `jobs` at once; failures are passed on.
    pub fn compile(&self, candidates: Vec<Result<(&Plan, Made), Failure>>, jobs: usize) -> Vec<Result<Compiled, Failure>> {
        // Threads, not rayon: a worker of rayon that waits for a compiler would start another one.
        let queue = Mutex::new(candidates.into_iter().enumerate());
        let done = Mutex::new(Vec::new());
        let take = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
        let work = || {
            while let Some((place, candidate)) = take() {
                let compiled = candidate.and_then(|(plan, made)| self.one(plan, made));
                done.lock().unwrap_or_else(PoisonError::into_inner).push((place, compiled));
            }
        };
        thread::scope(|scope| (0..jobs).for_each(|_| _ = scope.spawn(work)));
        let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
        done.sort_by_key(|(place, _)| *place);
        done.into_iter().map(|(_, compiled)| compiled).collect()
    }

    fn one(&self, plan: &Plan, made: Made) -> Result<Compiled, Failure> {
        let stopped = |error: CommandError| Failure { status: Status::Error, message: error.to_string() };
        self.build(plan, made, None).map_err(stopped)?
    }

    /// Compiles the kernel that kgen renders for a plan, or `edited` in its place, which may spill.
    ///
    /// # Errors
    /// [`CommandError`] if a folder or the cache cannot be used; the failure of the kernel itself is inside.
    pub fn build(&self, plan: &Plan, made: Made, edited: Option<&Edited>) -> Result<Result<Compiled, Failure>, CommandError> {
        let text = edited.map(Edited::to_compile);
        let hash = text.as_ref().map_or_else(|| made.source.clone(), content_hash);
        let out_dir = self.folder.join(plan.variant.name()).join(hash.get(..SHORT).unwrap_or(&hash));
        let options = BuildOptions {
            jobs: 1,
            memory_limit: None,
            launcher: None,
            generated_dir: out_dir.join("generated"),
            cache_dir: self.context.cache_dir()?,
            out_dir,
            time_limit: TIME_LIMIT,
            offline: self.offline,
            allow_spills: edited.is_some(),
        };
        let Tools { nvcc, host } = self.tools;
        let builder = Builder::open(nvcc, host, options, self.context.cancel.clone(), &Quiet)?;
        let plans = std::slice::from_ref(plan);
        let mut files = render::tree(&self.session.renderer, &self.session.templates, plans)?;
        if let Some(text) = &text {
            let kernel = render::file_name(&plan.variant);
            files.iter_mut().filter(|file| file.path == kernel).for_each(|file| file.text.clone_from(text));
        }
        render::write_tree(&builder.options().generated_dir, &files, Prune::Yes)?;
        let units = kernel_units(plans, &files, &self.session.templates, true);
        let mut report = builder.compile(&units)?;
        if let Some(failure) = report.failures.first() {
            let status = if failure.kind == FailureKind::MachineCode { Status::Spilled } else { Status::Error };
            return Ok(Err(Failure { status, message: failure.message.clone() }));
        }
        let Some(artifact) = report.artifacts.first() else { return Err(CommandError::INTERRUPTED) };
        let (registers, spilled) = (artifact.registers(), artifact.spill_bytes());
        if spilled > 0 && edited.is_none() {
            let message = format!("{spilled} bytes of spills with {registers} registers");
            return Ok(Err(Failure { status: Status::Spilled, message }));
        }
        report.library = Some(builder.link(&report.artifacts)?);
        builder.write_manifest(&report)?;
        let library = builder.options().out_dir.join("lib").join("libkgen.so");
        let library = std::path::absolute(&library).unwrap_or(library);
        let built = built(&library).remove(&plan.variant.name()).unwrap_or_default();
        Ok(Ok(Compiled { plan: plan.clone(), made, library, built, registers, compile_s: 0.0 }))
    }
}
