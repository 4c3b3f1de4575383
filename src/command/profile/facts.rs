//! What is known of a kernel without running it.

use crate::plan::{Occupancy, Plan};
use serde::Serialize;
use serde_json::{Map, Value};

/// Resources of a kernel.
#[derive(Debug, Serialize)]
pub struct Facts {
    /// Its template, a file in `templates/`.
    pub template: &'static str,
    /// Its tile as text.
    pub tile: String,
    /// Threads of a block.
    pub threads: u32,
    /// Dynamic shared memory of a block, in bytes.
    pub shared_memory_bytes: u32,
    /// Estimated registers of a thread.
    pub estimated_registers: u32,
    /// Blocks of a multiprocessor, and the resource that limits them.
    pub occupancy: Occupancy,
    /// The kernel in the library, as its manifest states it; `None` if the library does not hold it.
    pub compiled: Option<Compiled>,
}

/// A kernel in a library.
#[derive(Debug, Serialize)]
pub struct Compiled {
    /// Registers of a thread.
    pub registers: Option<u64>,
    /// Bytes of spilled registers.
    pub spill_bytes: Option<u64>,
    /// Tensor-core instructions in its machine code, by name; null if it was not inspected.
    pub tensor_cores: Value,
    /// BLAKE3 of its machine code; null if it was not inspected.
    pub sass: Value,
}

impl Facts {
    /// The facts of a plan, and those of the library's manifest entry for it, which is empty if there is none.
    pub(super) fn of(plan: &Plan, built: &Map<String, Value>) -> Self {
        let number = |name| built.get(name).and_then(Value::as_u64);
        let value = |name| built.get(name).cloned().unwrap_or_default();
        Self {
            template: plan.template,
            tile: plan.tile().to_string(),
            threads: plan.threads,
            shared_memory_bytes: plan.shared_memory_bytes,
            estimated_registers: plan.registers.total,
            occupancy: plan.occupancy.clone(),
            compiled: (!built.is_empty()).then(|| Compiled {
                registers: number("registers"),
                spill_bytes: number("spill_bytes"),
                tensor_cores: value("tensor_cores"),
                sass: value("sass"),
            }),
        }
    }
}
