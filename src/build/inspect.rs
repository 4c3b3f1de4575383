//! Inspects the machine code of an object: extracts the cubins and disassembles them.

use super::{
    BuildError, Builder,
    cache::Stored,
    sass::{self, MachineCode},
};
use crate::{
    files::content_hash,
    toolchain::{
        Disassembler, ToolchainError, find_disassembler,
        process::{self, Ending},
    },
};
use std::{
    fs::{self, File},
    io,
    path::Path,
    process::{Command, Stdio},
    sync::{Mutex, OnceLock, PoisonError},
    time::Duration,
};

/// Time limit of one of the programs; they need a fraction of a second.
const LIMIT: Duration = Duration::from_secs(60);

/// The disassembler, located when the first object needs it, and the reason why some object was not inspected.
#[derive(Debug, Default)]
pub(super) struct Inspector {
    found: OnceLock<Option<Disassembler>>,
    not_inspected: Mutex<Option<String>>,
}

impl Inspector {
    /// The reason why some machine code was not inspected; `None` if all of it was.
    pub fn not_inspected(&self) -> Option<String> {
        self.not_inspected.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Stores the first reason; returns true if this is it.
    fn give_up(&self, reason: &str) -> bool {
        let mut first = self.not_inspected.lock().unwrap_or_else(PoisonError::into_inner);
        let is_first = first.is_none();
        first.get_or_insert_with(|| reason.to_owned());
        is_first
    }
}

impl Builder<'_> {
    /// Summary of the machine code in `object`. `None` if it cannot be read, which is reported once per build: a
    /// machine without a disassembler still builds.
    pub(super) fn inspect(&self, object: &[u8]) -> Option<MachineCode> {
        let disassembler = self.disassembler()?;
        match self.disassemble(disassembler, object) {
            Ok(code) => Some(code),
            Err(reason) => {
                self.not_inspected(&reason);
                None
            }
        }
    }

    /// Inspects an entry that was stored without inspection, and stores the result.
    pub(super) fn inspect_stored(&self, key: &str, stored: &mut Stored) -> Result<(), BuildError> {
        if let Some(code) = self.inspect(&stored.output) {
            stored.entry.machine_code = Some(code);
            self.cache.update(key, stored)?;
        }
        Ok(())
    }

    fn disassembler(&self) -> Option<&Disassembler> {
        let find = || {
            let say = |message: &str| self.observer.note(message);
            match find_disassembler(self.nvcc, self.options.offline, &self.cancel, &say) {
                Ok(found) => Some(found),
                Err(ToolchainError::Cancelled) => None,
                Err(error) => {
                    self.not_inspected(&error.to_string());
                    None
                }
            }
        };
        self.inspector.found.get_or_init(find).as_ref()
    }

    fn not_inspected(&self, reason: &str) {
        if !self.cancel.requested() && self.inspector.give_up(reason) {
            self.observer.note(&format!("machine code is not inspected: {reason}"));
        }
    }

    fn disassemble(&self, tools: &Disassembler, object: &[u8]) -> Result<MachineCode, String> {
        let io = |error: io::Error| format!("a temporary file failed ({error})");
        let scratch = tempfile::tempdir().map_err(io)?;
        fs::write(scratch.path().join("object.o"), object).map_err(io)?;
        let mut extract = Command::new(&tools.cuobjdump);
        extract.args(["--extract-elf", "all", "object.o"]);
        self.run(&mut extract, scratch.path())?;

        let mut code = MachineCode { disassembler: tools.version.clone(), ..MachineCode::default() };
        let mut listings = Vec::new();
        for entry in fs::read_dir(scratch.path()).map_err(io)?.filter_map(Result::ok) {
            if entry.path().extension().is_none_or(|extension| extension != "cubin") {
                continue;
            }
            let mut list = Command::new(&tools.nvdisasm);
            // Code only, without data-flow analysis, which takes a quarter of the time.
            list.args(["--print-code", "--no-dataflow"]).arg(entry.file_name());
            self.run(&mut list, scratch.path())?;
            let listing = fs::read_to_string(scratch.path().join(SAID)).map_err(io)?;
            code.count(&listing);
            listings.push(sass::code_of(&listing));
        }
        listings.sort_unstable(); // a folder lists its files in any order
        code.sass = content_hash(listings.concat().as_bytes());
        match (listings.len(), code.instructions) {
            (0, _) => Err(format!("`{}` found no machine code in an object", tools.cuobjdump.display())),
            (_, 0) => Err(format!("`{}` listed no instructions", tools.nvdisasm.display())),
            _ => Ok(code),
        }
    }

    /// Runs one of the programs in `folder`; [`SAID`] then holds its standard output.
    fn run(&self, command: &mut Command, folder: &Path) -> Result<(), String> {
        let program = Path::new(command.get_program()).display().to_string();
        let io = |error: io::Error| format!("cannot run `{program}` ({error})");
        let complaints = folder.join("complaints");
        let (out, errors) = (File::create(folder.join(SAID)).map_err(io)?, File::create(&complaints).map_err(io)?);
        command.current_dir(folder).env("LC_ALL", "C").stdin(Stdio::null()).stdout(out).stderr(errors);
        let done = process::run(command, LIMIT, &self.cancel.when_insisted()).map_err(io)?;
        match done.ending {
            Ending::Exited(0) => Ok(()),
            other => {
                let text = fs::read_to_string(complaints).unwrap_or_default();
                let first = super::diagnostics::first_error(&text).unwrap_or_else(|| format!("it ended with {other:?}"));
                Err(format!("`{program}` failed: {first}"))
            }
        }
    }
}

/// File with the standard output of the last program run.
const SAID: &str = "said";
