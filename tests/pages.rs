//! What the pages of this repository speak of is there.

#![allow(clippy::panic, reason = "a test")]

use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The files below `folder` that end like `suffix`.
fn files(folder: &str, suffix: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut ahead = vec![root().join(folder)];
    while let Some(folder) = ahead.pop() {
        let entries = folder
            .read_dir()
            .unwrap_or_else(|error| panic!("{folder:?}: {error}"));
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                ahead.push(path);
            } else if path.to_string_lossy().ends_with(suffix) {
                found.push(path);
            }
        }
    }
    assert!(!found.is_empty(), "no {suffix} in {folder}");
    found
}

fn pages() -> Vec<PathBuf> {
    let top = root().read_dir().expect("the repository").flatten();
    let mut pages: Vec<_> = top
        .map(|entry| entry.path())
        .filter(|path| path.extension() == Some("md".as_ref()))
        .collect();
    pages.extend(files("docs", ".md"));
    pages.push(root().join("matrix/ADDING_A_VERSION.md"));
    pages
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn links_lead_somewhere() {
    let mut links = 0;
    for page in pages() {
        for link in read(&page).split("](").skip(1) {
            let target = link.split([')', '#']).next().unwrap_or_default();
            if target.is_empty() || target.contains("://") {
                continue;
            }
            let folder = page.parent().expect("a page is in a folder");
            assert!(
                folder.join(target).exists(),
                "{}: there is no {target}",
                page.display()
            );
            links += 1;
        }
    }
    assert!(links > 5, "found {links} links only");
}

#[test]
fn architecture_knows_every_module() {
    let page = read(&root().join("ARCHITECTURE.md"));
    for file in files("src", ".rs") {
        let path = file.strip_prefix(root().join("src")).expect("in src");
        let path = path.to_string_lossy().replace('\\', "/");
        let folder = path.split('/').next().unwrap_or_default();
        let known = page.contains(&format!("`{path}`"))
            // A folder that is spoken of as a whole, and the rows of all versions.
            || page.contains(&format!("`{folder}/`"))
            || path.starts_with("layout/v3_");
        assert!(known, "ARCHITECTURE.md does not say what src/{path} is for");
    }
}

#[test]
fn the_door_has_every_step_that_is_told_of() {
    let script = read(&root().join(".ci/run"));
    let page = read(&root().join("CONTRIBUTING.md"));
    let mut steps = 0;
    for step in page.split("`.ci/run ").skip(1) {
        let step = step.split([' ', '`']).next().unwrap_or_default();
        assert!(
            script.contains(&format!("\n{step}() {{")),
            "CONTRIBUTING.md: .ci/run has no step {step:?}"
        );
        steps += 1;
    }
    assert!(steps > 5, "found {steps} steps only");
}
