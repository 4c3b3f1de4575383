//! Rebuilds kgen when a file is added to or removed from what it embeds; cargo itself only sees edits.

fn main() {
    println!("cargo:rerun-if-changed=templates");
    println!("cargo:rerun-if-changed=variants.toml");
}
