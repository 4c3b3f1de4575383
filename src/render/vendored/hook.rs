//! Edits the text of vLLM's CMake file: kgen's lines include kgen's folder in vLLM's build.

/// Path of the edited file below a vLLM checkout.
pub(super) const FILE: &str = "cmake/external_projects/vllm_flash_attn.cmake";

/// The line before which kgen's lines are inserted. It downloads and builds vLLM's own attention kernels, unless they
/// were made available before.
const ANCHOR: &str = "FetchContent_MakeAvailable(vllm-flash-attn)";

/// Text that the file must contain: the modules' install rules rely on this prefix to install into the package.
const NESTED: &str = "CMAKE_INSTALL_PREFIX}/vllm/";

/// Marker in kgen's lines.
const MARK: &str = "kgen vendor vllm";

const LINES: &str = "\
# >>> kgen vendor vllm: attention on kgen's kernels; `kgen vendor vllm --remove` takes these lines away
include(${CMAKE_CURRENT_LIST_DIR}/../../kgen/vllm.cmake)
# <<< kgen vendor vllm
";

/// The file's text without kgen's lines.
///
/// # Errors
/// A clause, if kgen's lines have been edited.
pub(super) fn without(text: &str) -> Result<String, String> {
    let bare = text.replacen(LINES, "", 1);
    if bare.contains(MARK) {
        return Err(format!("the lines of `{MARK}` in `{FILE}` have been edited; restore or delete them"));
    }
    Ok(bare)
}

/// Inserts kgen's lines into `bare`, the file's text without them.
///
/// # Errors
/// A clause, if the text does not have the expected structure.
pub(super) fn with(bare: &str) -> Result<String, String> {
    let mut places = bare.match_indices(ANCHOR).map(|(place, _)| place).filter(|place| {
        let starts = bare[..*place].ends_with('\n') || *place == 0;
        starts && bare[place + ANCHOR.len()..].trim_start_matches([' ', '\t', '\r']).starts_with('\n')
    });
    let (Some(place), None) = (places.next(), places.next()) else {
        return Err(format!("`{FILE}` has no single line `{ANCHOR}`"));
    };
    let (before, after) = bare.split_at(place);
    if !before.contains(NESTED) {
        return Err(format!("`{FILE}` does not set `{NESTED}` before `{ANCHOR}`; vLLM 0.22 and newer do"));
    }
    Ok(format!("{before}{LINES}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BARE: &str = "install(CODE \"set(${CMAKE_INSTALL_PREFIX}/vllm/)\")\n# FetchContent_MakeAvailable(vllm-flash-attn)\n\
        FetchContent_MakeAvailable(vllm-flash-attn)\nmessage(STATUS there)\n";

    #[test]
    fn the_lines_stand_before_the_one_that_builds_and_leave_no_trace() {
        let text = with(BARE).expect("it is as expected");
        let line = |what: &str| text.lines().position(|line| line.starts_with(what)).expect("it is there");
        assert_eq!(line("include(") + 2, line(ANCHOR), "{text}");
        assert_eq!(without(&text), Ok(BARE.to_owned()));
        assert_eq!(without(BARE), Ok(BARE.to_owned()));
    }

    #[test]
    fn another_text_is_refused() {
        for (text, expected) in [
            (BARE.replace("\nFetchContent", "\n# FetchContent"), "no single line"),
            (format!("{BARE}{ANCHOR}\n"), "no single line"),
            (BARE.replace("/vllm/", "/"), "does not set"),
        ] {
            assert!(with(&text).is_err_and(|reason| reason.contains(expected)), "{text}");
        }
        let edited = with(BARE).expect("it is as expected").replace("/../../kgen", "/../mine");
        assert!(without(&edited).is_err_and(|reason| reason.contains("have been edited")));
    }
}
