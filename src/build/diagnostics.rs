//! Finds the line of a compiler's output that a person needs.

/// Longest line shown (characters); template errors can run over pages.
const LONGEST: usize = 400;

/// `line` prepared for display: at most [`LONGEST`] characters, without control characters.
fn shown(line: &str) -> String {
    line.chars().take(LONGEST).map(|c| if c.is_control() && c != '\t' { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// The first real error line of a compile or link log; the driver's closing "failed" line is skipped if a compiler
/// reported a cause before it.
pub(super) fn first_error(log: &str) -> Option<String> {
    let lines = || log.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#'));
    let causes: [fn(&str) -> bool; 4] = [
        // nvcc's front end and the host compiler: `file(12): error: …`, `file:12:3: fatal error: …`. ptxas pads the
        // word: `ptxas file.ptx, line 21; error   : …`.
        |l| names_error(l) && !l.starts_with("nvcc") && !l.starts_with("collect2"),
        |l| l.starts_with("ptxas fatal") || l.starts_with("ptxas error") || l.starts_with("nvlink"),
        |l| l.contains("undefined reference") || l.contains("undefined symbol") || l.contains("ld: "),
        |l| l.starts_with("nvcc fatal") || l.starts_with("nvcc error") || names_error(l),
    ];
    let found = causes.iter().find_map(|is_cause| lines().find(|l| is_cause(l)));
    found.or_else(|| lines().next_back()).map(shown)
}

/// True for a line that reports an error: it contains `error:`, and no `warning` before that.
fn names_error(line: &str) -> bool {
    let lower = line.to_ascii_lowercase();
    let before_warning = lower.find("warning").map_or(lower.as_str(), |at| &lower[..at]);
    before_warning.match_indices("error").any(|(at, word)| before_warning[at + word.len()..].trim_start().starts_with(':'))
}

/// True if the log shows that Linux's out-of-memory killer ended a part of the compiler, or that an allocation
/// failed.
pub(super) fn ran_out_of_memory(log: &str) -> bool {
    [
        "died due to signal 9",
        "terminated with signal 9",
        "signal terminated program",
        "virtual memory exhausted",
        "std::bad_alloc",
    ]
    .iter()
    .any(|words| log.contains(words))
        || log.lines().any(|l| l.trim() == "Killed" || l.ends_with(": Killed") || l.contains("Cannot allocate memory"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_error_line_is_found_among_warnings() {
        let log = "x.cu(3): warning #177-D: no error: only a warning\nx.cu(9): error: identifier \"foo\" is undefined\n\
            x.cu(10): error: another\n2 errors detected in the compilation of \"x.cu\".\n";
        assert_eq!(first_error(log).unwrap(), "x.cu(9): error: identifier \"foo\" is undefined");
    }

    #[test]
    fn ptxas_names_the_instruction_before_its_fatal_line() {
        let log =
            "ptxas /t/x.ptx, line 21; error   : Unknown modifier '.bar'\nptxas fatal   : Ptx assembly aborted due to errors\n";
        assert!(first_error(log).unwrap().contains("Unknown modifier"));
        assert!(first_error("ptxas fatal   : Unresolved extern function 'f'\n").unwrap().contains("Unresolved"));
    }

    #[test]
    fn a_host_compilers_fatal_error_is_an_error() {
        let log = "# nvcc -c x.cu\nx.cu:1:10: fatal error: nope.h: No such file or directory\ncompilation terminated.\n";
        assert_eq!(first_error(log).unwrap(), "x.cu:1:10: fatal error: nope.h: No such file or directory");
    }

    #[test]
    fn an_undefined_symbol_comes_before_the_linkers_closing_line() {
        let log = "/usr/bin/ld: a.o: in function `f': undefined reference to `g'\ncollect2: error: ld returned 1 exit status\n";
        assert!(first_error(log).unwrap().contains("undefined reference to `g'"));
    }

    #[test]
    fn garbage_from_a_compiler_does_not_reach_the_terminal() {
        let line = first_error(&format!("\u{1b}]0;title\u{7}\u{0}{}", "x".repeat(5000))).unwrap();
        assert!(line.chars().count() == LONGEST && !line.contains(char::is_control), "{line:?}");
    }

    #[test]
    fn a_killed_part_of_the_compiler_is_a_lack_of_memory() {
        assert!(ran_out_of_memory("nvcc error   : 'cicc' died due to signal 9 (Kill signal)\n"));
        assert!(ran_out_of_memory("sh: 1: Killed\n"));
        assert!(!ran_out_of_memory("nvcc error   : 'cicc' died due to signal 11 (Invalid memory reference)\n"));
        assert!(!ran_out_of_memory("x.cu(1): error: identifier \"Killed\" is undefined\n"));
    }
}
