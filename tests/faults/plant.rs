//! Plants a fault in a kernel: its text is replaced in the template, part, header or kernel that it names, and nowhere
//! else.

use super::{
    code::replace_once,
    laboratory::{Kernel, Laboratory},
    list::Fault,
    parts::is_part,
};
use std::collections::BTreeSet;

/// The reason why a fault cannot be planted in a kernel.
fn counted(count: usize) -> String {
    format!("`find` occurs {count} times")
}

impl Laboratory {
    /// A kernel's text with a fault in it. `file` contains `find`; `None` means the whole kernel. A fault in a header
    /// is planted in a copy that replaces its `#include`.
    ///
    /// # Errors
    /// The reason, if the fault does not concern the kernel.
    fn plant(&self, fault: &Fault, file: Option<&str>, kernel: &Kernel) -> Result<String, String> {
        let once = |text: &str| replace_once(text, &fault.find, &fault.replace).map_err(counted);
        let text = || kernel.text(self);
        let planted = match file {
            None => once(text())?,
            Some(file) if is_part(file) => {
                let parted = kernel.parted(self);
                let parts = parted.parts.get(file).map_or(&[][..], Vec::as_slice);
                // A part may occur several times in a kernel: exactly one occurrence must contain `find`, once.
                let planted = parts.iter().filter_map(|part| Some((part, once(&parted.text[part.clone()]).ok()?)));
                match &planted.collect::<Vec<_>>()[..] {
                    [(part, piece)] => format!("{}{piece}{}", &parted.text[..part.start], &parted.text[part.end..]),
                    found => return Err(format!("{} texts of `{file}` hold `find` once", found.len())),
                }
            }
            Some(file) => match file.strip_prefix("include/") {
                Some(header) => {
                    let own = self.headers.get(header).ok_or_else(|| format!("there is no `{file}`"))?;
                    let planted = once(own)?;
                    self.with_header(text(), header, &planted).ok_or_else(|| format!("it does not include `{file}`"))?
                }
                None if kernel.plan.template == file => once(text())?,
                None => return Err(format!("its template is not `{file}`")),
            },
        };
        match &fault.also {
            Some([find, replace]) => replace_once(&planted, find, replace).map_err(|count| format!("also: {}", counted(count))),
            None => Ok(planted),
        }
    }

    /// A text with `own` in place of the first inclusion of `header`; if another header includes it, that header's text
    /// is inserted too. `None` if nothing includes it.
    fn with_header(&self, text: &str, header: &str, own: &str) -> Option<String> {
        let mut seen = BTreeSet::new();
        let whole = self.inlined(text, header, own, &mut seen);
        seen.contains(header).then_some(whole)
    }

    fn inlined<'a>(&'a self, text: &str, header: &'a str, own: &str, seen: &mut BTreeSet<&'a str>) -> String {
        let mut whole = String::new();
        for line in text.lines().filter(|line| *line != "#pragma once") {
            match included(line).and_then(|path| self.headers.get_key_value(path)) {
                Some((path, _)) if seen.contains(path.as_str()) => {}
                Some((path, _)) if path == header => {
                    seen.insert(path);
                    whole += &self.inlined(own, header, own, seen);
                }
                Some((path, inner)) if self.reaches(inner, header) => {
                    seen.insert(path);
                    whole += &self.inlined(inner, header, own, seen);
                }
                _ => whole.extend([line, "\n"]),
            }
        }
        whole
    }

    /// True if a text includes `header`, directly or through another header.
    fn reaches(&self, text: &str, header: &str) -> bool {
        let is_way = |path: &str| path == header || self.headers.get(path).is_some_and(|inner| self.reaches(inner, header));
        text.lines().filter_map(included).any(is_way)
    }

    /// The kernels with the fault in them: those that it names, or the first kernel of every template that it concerns;
    /// for a fault in a header, the first of all.
    ///
    /// # Errors
    /// The error in the entry: `find` does not occur exactly once in a kernel that it names, or in no kernel with its
    /// file.
    pub fn planted(&self, grid: &str, fault: &Fault) -> Result<Vec<(&Kernel, String)>, String> {
        if !fault.kernels.all().is_empty() {
            let file = fault.file.all().first().map(String::as_str);
            let named = fault.kernels.all().iter().map(|name| {
                let kernel = self.grid(grid).iter().find(|kernel| kernel.name() == *name);
                let kernel = kernel.ok_or_else(|| format!("the grid `{grid}` has no `{name}`"))?;
                let text = self.plant(fault, file, kernel).map_err(|reason| format!("{name}: {reason}"))?;
                Ok((kernel, text))
            });
            return named.collect();
        }
        let mut planted = Vec::new();
        for file in fault.file.all() {
            let mut concerned = BTreeSet::new();
            for kernel in self.shapes(grid) {
                let template = if file.starts_with("include/") { "" } else { kernel.plan.template };
                let is_asked = fault.among.as_ref().is_none_or(|part| kernel.name().contains(part));
                if !is_asked || concerned.contains(template) {
                    continue;
                }
                let Ok(text) = self.plant(fault, Some(file), kernel) else { continue };
                concerned.insert(template);
                planted.push((kernel, text));
            }
            if concerned.is_empty() {
                return Err(format!("no kernel of the grid `{grid}` has `{file}` and `find` once in it"));
            }
        }
        Ok(planted)
    }
}

/// The header that a line includes.
fn included(line: &str) -> Option<&str> {
    line.strip_prefix("#include \"")?.strip_suffix('"')
}
