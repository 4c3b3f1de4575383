//! Addresses of the pages of `docs/`, for messages: an installed kgen has no `docs/` beside it. The repository's
//! address is that in `Cargo.toml`.

/// The address of a page, a string literal: `page!("python.md")`.
macro_rules! page {
    ($name:literal) => {
        concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/docs/", $name)
    };
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    /// Texts of the crate's sources by path, including tests.
    fn sources(folder: &Path, found: &mut Vec<(String, String)>) {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                sources(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push((path.display().to_string(), fs::read_to_string(&path).expect("a source is text")));
            }
        }
    }

    #[test]
    fn addresses_follow_from_the_one_of_the_repository() {
        let manifest: toml::Table = include_str!("../Cargo.toml").parse().expect("a manifest");
        let field = |name: &str| manifest["package"][name].as_str().expect("a text").to_owned();
        let repository = field("repository");
        assert!(repository.starts_with("https://") && !repository.ends_with('/'), "{repository}");
        assert_eq!(field("homepage"), repository);
        assert_eq!(field("documentation"), format!("{repository}/tree/main/docs"));
        assert_eq!(page!("python.md"), format!("{repository}/blob/main/docs/python.md"));
    }

    #[test]
    fn every_page_that_a_message_names_exists_and_is_named_by_its_address() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut found = Vec::new();
        sources(&root.join("src"), &mut found);
        let (mut named, mut bare, mut missing) = (0, Vec::new(), Vec::new());
        for (path, text) in found.iter().filter(|(path, _)| !path.ends_with("src/pages.rs")) {
            let of_product = text.split("#[cfg(test)]").next().unwrap_or_default();
            let is_shown = |line: &&str| {
                let comment = line.trim_start().starts_with("//");
                // Doc comments of arguments are help texts.
                !comment || path.contains("/src/cli/") && line.trim_start().starts_with("///")
            };
            for line in of_product.lines().filter(is_shown) {
                for name in line.split("page!(\"").skip(1).filter_map(|rest| rest.split('"').next()) {
                    named += 1;
                    if !root.join("docs").join(name).is_file() {
                        missing.push(format!("{path}: {name}"));
                    }
                }
                // An included file is a part of the program.
                if line.contains("docs/") && !line.contains("include_str!(") {
                    bare.push(format!("{path}: {}", line.trim()));
                }
            }
        }
        assert!(named > 4, "only {named} pages were found");
        assert!(missing.is_empty(), "pages that do not exist:\n{}", missing.join("\n"));
        assert!(bare.is_empty(), "pages named by a path that an installed kgen does not have:\n{}", bare.join("\n"));
    }
}
