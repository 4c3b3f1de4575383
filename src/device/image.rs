//! A tensor in memory, with the surrounding bytes that a kernel must not change.
#![allow(unsafe_code)]
#![allow(clippy::cast_possible_wrap, reason = "a tensor in memory is smaller than 2⁶³ bytes")]

/// Content of every 16 bits of unwritten memory: a NaN as fp16, as bf16 and, in pairs, as fp32. An output that still
/// holds it was not written; an input read from it propagates NaN.
pub const POISON: u16 = 0x7fa5;

/// The contents of two unwritten elements of E4M3: one byte of [`POISON`] would be a number there.
const POISON_BYTES: u16 = 0xffff;

/// Bytes of guard zone before and after a tensor; a multiple of the alignment of device allocations.
const GUARD_BYTES: usize = 256;

/// Width of a tensor's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Element {
    /// E4M3.
    Bits8,
    /// fp16 and bf16.
    Bits16,
    /// fp32 and int32.
    Bits32,
}

impl Element {
    /// Bytes of one element.
    pub fn bytes(self) -> usize {
        match self {
            Self::Bits8 => 1,
            Self::Bits16 => 2,
            Self::Bits32 => 4,
        }
    }

    /// Content of 16 bits of unwritten memory.
    fn poison(self) -> u16 {
        match self {
            Self::Bits8 => POISON_BYTES,
            Self::Bits16 | Self::Bits32 => POISON,
        }
    }
}

/// 256 bytes, with the alignment of device allocations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C, align(256))]
struct Line([u16; 128]);

/// A tensor in memory: its elements at the offsets their strides give, gaps between them, and a guard zone on both
/// sides. Elements are addressed by their offset from element (0, 0, 0), which may be negative.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    lines: Vec<Line>,
    element: Element,
    /// Elements from the start of the memory to element (0, 0, 0).
    origin: usize,
    /// Elements from the first to the last, including gaps.
    span: usize,
    /// One entry per element: 1 if it is part of the tensor, 0 in gaps and guard zones.
    map: Vec<u8>,
}

impl Image {
    /// Memory for `span` elements whose number `origin` is element (0, 0, 0): all poisoned, none marked. The first of
    /// the `span` elements is aligned to 256 bytes.
    pub fn poisoned(element: Element, span: usize, origin: usize) -> Self {
        let bytes = GUARD_BYTES + (span * element.bytes()).next_multiple_of(size_of::<Line>()) + GUARD_BYTES;
        Self {
            lines: vec![Line([element.poison(); 128]); bytes / size_of::<Line>()],
            element,
            origin: GUARD_BYTES / element.bytes() + origin,
            span,
            map: vec![0; bytes / element.bytes()],
        }
    }

    /// A tensor of fp32 numbers at these offsets from its start, with gaps between them.
    pub fn of_numbers(numbers: &[(i64, f32)]) -> Self {
        let span = numbers.iter().map(|&(offset, _)| offset as usize + 1).max().unwrap_or(0);
        let mut image = Self::poisoned(Element::Bits32, span, 0);
        for &(offset, value) in numbers {
            image.put(offset, value.to_bits());
        }
        image
    }

    /// A contiguous tensor of 32-bit integers.
    pub fn of_integers(values: &[i32]) -> Self {
        let mut image = Self::poisoned(Element::Bits32, values.len(), 0);
        for (offset, value) in values.iter().enumerate() {
            image.put(offset as i64, value.cast_unsigned());
        }
        image
    }

    /// Poisoned memory of `bytes` bytes, rounded up to 32-bit words, that a kernel may use freely.
    pub fn scratch(bytes: usize) -> Self {
        let mut image = Self::poisoned(Element::Bits32, bytes.div_ceil(4), 0);
        for word in 0..image.span {
            image.mark(word as i64);
        }
        image
    }

    /// Bytes from the first element to the last, including gaps but not guard zones.
    pub fn span_bytes(&self) -> usize {
        self.span * self.element.bytes()
    }

    /// Writes the bits of the element at `offset` and marks it as part of the tensor.
    ///
    /// # Panics
    /// If `offset` is outside the memory: the caller computed the span.
    pub fn put(&mut self, offset: i64, bits: u32) {
        let index = self.mark(offset);
        self.set(index, bits);
    }

    /// Writes an element without marking it as part of the tensor, as a faulty kernel would.
    #[cfg(test)]
    pub(crate) fn scribble(&mut self, offset: i64, bits: u32) {
        let index = self.index(offset);
        self.set(index, bits);
    }

    fn set(&mut self, index: usize, bits: u32) {
        match self.element {
            Element::Bits8 => {
                let pair = &mut self.lines[index / 256].0[index / 2 % 128];
                let mut bytes = pair.to_le_bytes();
                bytes[index % 2] = bits as u8;
                *pair = u16::from_le_bytes(bytes);
            }
            Element::Bits16 => self.lines[index / 128].0[index % 128] = bits as u16,
            Element::Bits32 => {
                let word = index * 2;
                self.lines[word / 128].0[word % 128] = bits as u16;
                self.lines[word / 128].0[word % 128 + 1] = (bits >> 16) as u16;
            }
        }
    }

    /// Marks the element at `offset` as part of the tensor without writing it; returns its index in memory.
    ///
    /// # Panics
    /// If `offset` is outside the memory.
    pub fn mark(&mut self, offset: i64) -> usize {
        let index = self.index(offset);
        self.map[index] = 1;
        index
    }

    /// The bits of the element at `offset`.
    ///
    /// # Panics
    /// If `offset` is outside the memory.
    pub fn bits(&self, offset: i64) -> u32 {
        self.bits_at(self.index(offset))
    }

    /// Offset of the first element outside the tensor that is no longer poison.
    pub fn first_damage(&self) -> Option<i64> {
        let poison = u32::from(self.element.poison());
        let poison = match self.element {
            Element::Bits8 => poison & 0xff,
            Element::Bits16 => poison,
            Element::Bits32 => poison << 16 | poison,
        };
        (0..self.map.len())
            .find(|&index| self.map[index] == 0 && self.bits_at(index) != poison)
            .map(|index| index as i64 - self.origin as i64)
    }

    /// Width of the elements.
    pub fn element(&self) -> Element {
        self.element
    }

    /// Size of the memory in bytes, including guard zones.
    pub fn bytes(&self) -> usize {
        size_of_val(self.lines.as_slice())
    }

    /// Bytes from the start of the memory to element (0, 0, 0).
    pub fn origin_bytes(&self) -> usize {
        self.origin * self.element.bytes()
    }

    /// One entry per element of the whole memory: 1 if it is part of the tensor.
    pub fn map(&self) -> &[u8] {
        &self.map
    }

    /// The whole memory.
    pub(super) fn memory(&self) -> &[u8] {
        // SAFETY: `lines` is one allocation of `bytes()` initialised bytes without padding, borrowed for the same
        // lifetime.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.bytes()) }
    }

    /// The whole memory, mutable.
    pub(super) fn memory_mut(&mut self) -> &mut [u8] {
        let bytes = self.bytes();
        // SAFETY: as in `memory`; every bit pattern is a valid `Line`, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), bytes) }
    }

    fn index(&self, offset: i64) -> usize {
        usize::try_from(self.origin as i64 + offset).expect("the offset lies in the tensor's memory")
    }

    fn bits_at(&self, index: usize) -> u32 {
        match self.element {
            Element::Bits8 => u32::from(self.lines[index / 256].0[index / 2 % 128].to_le_bytes()[index % 2]),
            Element::Bits16 => u32::from(self.lines[index / 128].0[index % 128]),
            Element::Bits32 => {
                let word = index * 2;
                let line = &self.lines[word / 128].0;
                u32::from(line[word % 128]) | u32::from(line[word % 128 + 1]) << 16
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn poison_is_a_nan_in_every_type_of_output() {
        assert!(half::f16::from_bits(POISON).is_nan());
        assert!(half::bf16::from_bits(POISON).is_nan());
        assert!(f32::from_bits(u32::from(POISON) << 16 | u32::from(POISON)).is_nan());
    }

    #[test]
    fn a_write_beside_the_tensor_is_damage_and_a_write_inside_is_not() {
        let mut image = Image::poisoned(Element::Bits16, 10, 1);
        image.mark(0);
        image.put(0, 7);
        assert_eq!(image.bits(0), 7);
        assert_eq!(image.first_damage(), None);
        let gap = image.origin_bytes() + 2 * 3;
        image.memory_mut()[gap] ^= 1;
        assert_eq!(image.first_damage(), Some(3));
        image.memory_mut()[0] ^= 1;
        assert_eq!(image.first_damage(), Some(-129), "the guard zone counts too");
    }

    #[test]
    fn bytes_lie_one_behind_the_other_and_are_poisoned_with_nan() {
        let mut image = Image::poisoned(Element::Bits8, 4, 0);
        image.put(1, 0x38);
        image.put(2, 0x7e);
        let start = image.origin_bytes();
        assert_eq!(image.memory()[start - 1..start + 4], [0xff, 0xff, 0x38, 0x7e, 0xff]);
        assert_eq!((image.bits(1), image.bits(2), image.first_damage()), (0x38, 0x7e, None));
        image.scribble(0, 1);
        assert_eq!(image.first_damage(), Some(0));
    }

    #[test]
    fn integers_lie_one_behind_the_other_and_aligned() {
        let image = Image::of_integers(&[3, -1]);
        let start = image.origin_bytes();
        assert_eq!(start % 256, 0);
        assert_eq!(image.memory()[start..start + 8], [3, 0, 0, 0, 255, 255, 255, 255]);
        assert_eq!(image.bits(1), u32::MAX);
    }
}
