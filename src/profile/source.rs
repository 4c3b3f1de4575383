//! The texts of the files that an emulated kernel is compiled from.

use super::Line;

/// The texts that places in a kernel name.
#[derive(Debug, Clone)]
pub struct Sources<'a> {
    /// Name of the file that the kernel is compiled as: `flash_fwd_hdim64_fp16_sm80.cu`.
    pub kernel_file: String,
    /// Name under which the kernel's text is shown.
    pub shown_as: String,
    /// Text of the kernel.
    pub kernel: &'a str,
    /// Headers: path and text.
    pub headers: Vec<(&'a str, &'a str)>,
}

impl Sources<'_> {
    /// Gives a line the name of its file as people know it, and its text.
    pub fn complete(&self, line: &mut Line) {
        let is_kernel = line.file.rsplit('/').next() == Some(self.kernel_file.as_str());
        let is_header =
            |path: &str| line.file.strip_suffix(path).is_some_and(|folder| folder.is_empty() || folder.ends_with('/'));
        let (file, text) = if is_kernel {
            (self.shown_as.as_str(), self.kernel)
        } else {
            let Some((path, text)) = self.headers.iter().find(|(path, _)| is_header(path)) else { return };
            (*path, *text)
        };
        let found = (line.line as usize).checked_sub(1).and_then(|index| text.lines().nth(index));
        line.text = found.unwrap_or_default().trim().to_owned();
        line.file = file.to_owned();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_kernel_or_of_a_header_has_its_text_and_another_keeps_its_place() {
        let sources = Sources {
            kernel_file: "k.cu".to_owned(),
            shown_as: "mine.cu".to_owned(),
            kernel: "one\n  two;\n",
            headers: vec![("kgen/tile.cuh", "first\nsecond\n")],
        };
        let at = |file: &str, number| {
            let mut line = Line { file: file.to_owned(), line: number, ..Line::default() };
            sources.complete(&mut line);
            (line.file, line.text)
        };
        assert_eq!(at("/cache/.new-1/k.cu", 2), ("mine.cu".to_owned(), "two;".to_owned()));
        assert_eq!(at("/cache/kit/include/kgen/tile.cuh", 1), ("kgen/tile.cuh".to_owned(), "first".to_owned()));
        assert_eq!(at("/cache/kit/include/kgen/warp_tile.cuh", 1).1, "");
        assert_eq!(at("k.cu", 99), ("mine.cu".to_owned(), String::new()));
    }
}
