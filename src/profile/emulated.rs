//! One run of a trial on the emulator.

use super::{Line, line, worker::Failure};
use crate::{
    bench::{Output, Status, Trial},
    check::Number,
    device::{Call, Device, Element, Emulator, Image, Schedule},
};

/// Runs the kernel once and returns the lines with its accesses, and the relative error of its results.
///
/// # Errors
/// [`Failure`] if it does not run to its end, or its results are wrong.
pub fn run(emulator: &mut Emulator, trial: &dyn Trial, seed: u64) -> Result<(Vec<Line>, f64), Failure> {
    let host = trial.inputs(0);
    let inputs = host.iter().map(|(name, bytes)| (*name, image_of(bytes))).collect();
    let tensors = |outputs: &[Output]| outputs.iter().map(|output| (output.name, space_for(output))).collect();
    let mut outputs = trial.outputs(0);
    let mut call = Call { inputs, outputs: tensors(&outputs), scratch: false, multiprocessors: None, params: trial.params() };
    if trial.has_workspace() {
        outputs = trial.outputs(emulator.workspace_for(&call)?);
        call.outputs = tensors(&outputs);
    }
    let results = emulator.run(&call, Schedule::shuffled(seed))?;
    let written: Vec<Vec<u8>> = results.0.iter().map(|(_, image)| bytes_of(image)).collect();
    let relative_error = trial.judge(&host, &outputs, &written).map_err(|message| Failure { status: Status::Wrong, message })?;
    let lines = line::parse(&emulator.profile()?).map_err(|message| Failure { status: Status::Error, message })?;
    Ok((lines, relative_error))
}

/// A contiguous input.
fn image_of(bytes: &[u8]) -> Image {
    let element = if bytes.len().is_multiple_of(2) { Element::Bits16 } else { Element::Bits8 };
    let mut image = Image::poisoned(element, bytes.len() / element.bytes(), 0);
    for (offset, bits) in (0..).zip(bytes.chunks_exact(element.bytes())) {
        image.put(offset, bits.iter().rev().fold(0, |all, byte| all << 8 | u32::from(*byte)));
    }
    image
}

/// Unwritten memory of an output.
fn space_for(output: &Output) -> Image {
    let element = output.number.map_or(Element::Bits32, Number::element);
    let count = output.bytes.div_ceil(element.bytes());
    let mut image = Image::poisoned(element, count, 0);
    for offset in (0..).take(count) {
        image.mark(offset);
    }
    image
}

/// The contents of a contiguous tensor.
fn bytes_of(image: &Image) -> Vec<u8> {
    let width = image.element().bytes();
    (0..).take(image.span_bytes() / width).flat_map(|offset| image.bits(offset).to_le_bytes().into_iter().take(width)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_survive_memory() {
        for bytes in [(0..=200).collect::<Vec<u8>>(), (0..250).collect()] {
            assert_eq!(bytes_of(&image_of(&bytes)), bytes);
        }
    }
}
