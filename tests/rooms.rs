//! The rooms of the crate (top-level modules of `src/`) and the rooms that each may use. A room uses only rooms above
//! it in the table, so imports have no cycle. docs/architecture.md shows the same table.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};
use syn::visit::Visit;

/// Each room with the rooms that its code uses, except in tests.
const ROOMS: &[(&str, &[&str])] = &[
    ("jobs", &[]),
    ("text", &[]),
    ("files", &[]),
    ("isolate", &[]),
    ("wheel", &["files"]),
    ("toolchain", &["files"]),
    ("expression", &["files", "text"]),
    ("kernel", &["expression", "text"]),
    ("plan", &["kernel"]),
    ("device", &["files", "toolchain"]),
    ("check", &["device", "files", "isolate", "jobs", "kernel", "plan"]),
    ("bench", &["check", "device", "isolate", "kernel", "plan"]),
    ("probe", &["bench", "check", "device", "files", "isolate", "kernel", "text"]),
    ("profile", &["bench", "check", "device", "isolate", "kernel", "toolchain"]),
    ("grid", &["expression", "files", "kernel", "text"]),
    ("family", &["bench", "check", "device", "expression", "grid", "isolate", "jobs", "kernel", "plan"]),
    ("lab", &["bench", "check", "files", "grid", "kernel", "plan", "probe"]),
    ("render", &["family", "files", "kernel", "plan"]),
    ("build", &["family", "files", "jobs", "kernel", "plan", "toolchain"]),
    (
        "command",
        &[
            "bench",
            "build",
            "check",
            "device",
            "expression",
            "family",
            "files",
            "grid",
            "jobs",
            "kernel",
            "lab",
            "plan",
            "probe",
            "profile",
            "render",
            "text",
            "toolchain",
            "wheel",
        ],
    ),
    (
        "cli",
        &[
            "bench",
            "build",
            "check",
            "command",
            "device",
            "expression",
            "family",
            "files",
            "grid",
            "isolate",
            "kernel",
            "lab",
            "plan",
            "profile",
            "render",
            "text",
            "toolchain",
        ],
    ),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every Rust file below a folder.
fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("the folder is there") {
            let path = entry.expect("it can be read").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files
}

/// The room of a file: the first component of its path below `src/`.
fn room_of(file: &Path) -> String {
    let below = file.strip_prefix(root().join("src")).expect("a file of src/");
    let first = below.components().next().expect("it has a name").as_os_str().to_string_lossy();
    first.trim_end_matches(".rs").to_owned()
}

/// Collects the second component of every path that begins with `crate`.
#[derive(Default)]
struct Uses(BTreeSet<String>);

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg") && attribute.parse_args::<syn::Path>().is_ok_and(|condition| condition.is_ident("test"))
    })
}

impl Uses {
    fn of_tree(&mut self, tree: &syn::UseTree, depth: usize) {
        match tree {
            syn::UseTree::Path(path) if depth == 0 && path.ident == "crate" => self.of_tree(&path.tree, 1),
            syn::UseTree::Path(path) if depth == 1 => _ = self.0.insert(path.ident.to_string()),
            syn::UseTree::Name(name) if depth == 1 => _ = self.0.insert(name.ident.to_string()),
            syn::UseTree::Rename(name) if depth == 1 => _ = self.0.insert(name.ident.to_string()),
            syn::UseTree::Group(group) => group.items.iter().for_each(|tree| self.of_tree(tree, depth)),
            _ => {}
        }
    }
}

impl<'ast> Visit<'ast> for Uses {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_test(&item.attrs) {
            syn::visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if !is_test(&item.attrs) {
            syn::visit::visit_item_impl(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if !is_test(&item.attrs) {
            self.of_tree(&item.tree, 0);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let mut segments = path.segments.iter().map(|segment| segment.ident.to_string());
        if let (Some(first), Some(second)) = (segments.next(), segments.next())
            && first == "crate"
        {
            self.0.insert(second);
        }
        syn::visit::visit_path(self, path);
    }
}

/// The test-only files that a file declares: `#[cfg(test)] mod name;`.
fn test_files(file: &Path, parsed: &syn::File) -> Vec<PathBuf> {
    let folder = if file.ends_with("mod.rs") || file.ends_with("lib.rs") {
        file.parent().expect("a folder").to_owned()
    } else {
        file.with_extension("")
    };
    let modules = parsed.items.iter().filter_map(|item| match item {
        syn::Item::Mod(module) if module.content.is_none() && is_test(&module.attrs) => Some(module.ident.to_string()),
        _ => None,
    });
    modules.map(|name| folder.join(format!("{name}.rs"))).collect()
}

/// The rooms that each room uses, read from the sources.
fn uses() -> BTreeMap<String, BTreeSet<String>> {
    let parse = |file: &PathBuf| syn::parse_file(&fs::read_to_string(file).expect("it is text")).expect("it is Rust");
    let parsed: Vec<(PathBuf, syn::File)> =
        rust_files(&root().join("src")).into_iter().map(|file| (file.clone(), parse(&file))).collect();
    let of_tests: BTreeSet<PathBuf> = parsed.iter().flat_map(|(file, parsed)| test_files(file, parsed)).collect();
    let rooms: BTreeSet<&str> = ROOMS.iter().map(|(room, _)| *room).collect();
    let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (file, parsed) in parsed.iter().filter(|(file, _)| !of_tests.contains(file)) {
        let room = room_of(file);
        let mut found = Uses::default();
        found.visit_file(parsed);
        let others = found.0.into_iter().filter(|used| *used != room && rooms.contains(used.as_str()));
        uses.entry(room.clone()).or_default().extend(others);
    }
    uses
}

#[test]
fn rooms_use_exactly_the_rooms_of_the_table() {
    let mut found = uses();
    let mut wrong = Vec::new();
    for (room, allowed) in ROOMS {
        let used = found.remove(*room).unwrap_or_else(|| panic!("`src/{room}` is not there"));
        let allowed: BTreeSet<String> = allowed.iter().map(|&other| other.to_owned()).collect();
        wrong.extend(used.difference(&allowed).map(|other| format!("`{room}` uses `{other}`, which the table does not allow")));
        wrong.extend(allowed.difference(&used).map(|other| format!("`{room}` no longer uses `{other}`: take it from the table")));
    }
    assert!(wrong.is_empty(), "tests/rooms.rs has the table:\n{}", wrong.join("\n"));
    // `lib` and `main` use all rooms; `pages` contains only a macro.
    let rest: Vec<&String> = found.keys().filter(|room| !["lib", "main", "pages"].contains(&room.as_str())).collect();
    assert!(rest.is_empty(), "rooms that the table lacks: {rest:?}");
}

#[test]
fn rooms_use_only_rooms_above_them_so_there_is_no_circle() {
    for (place, (room, used)) in ROOMS.iter().enumerate() {
        for other in *used {
            assert!(ROOMS[..place].iter().any(|(above, _)| above == other), "`{room}` uses `{other}`, which is not above it");
        }
    }
}

#[test]
fn the_page_shows_the_table() {
    let page = fs::read_to_string(root().join("docs/architecture.md")).expect("the page is there");
    for (room, used) in ROOMS {
        let row = page
            .lines()
            .find(|line| line.starts_with(&format!("| `src/{room}/` |")) || line.starts_with(&format!("| `src/{room}.rs` |")));
        let row = row.unwrap_or_else(|| panic!("docs/architecture.md has no row for `src/{room}`"));
        let shown = row.trim_end_matches('|').rsplit('|').next().expect("a cell").trim();
        let expected = if room == &"cli" { "all".to_owned() } else { used.join(", ") };
        assert_eq!(shown, expected, "docs/architecture.md, row `src/{room}`");
    }
}
