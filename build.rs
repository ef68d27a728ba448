//! Refuses what cannot work with one clear line, links the examples and tests that
//! embed an interpreter, and builds the library that the program carries.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    // Otherwise any new file in the package (Python's __pycache__, say) means that
    // everything is built again.
    println!("cargo::rerun-if-changed=build.rs");
    let mut checked = check_rustc().and_then(|()| check_target());
    if env::var_os("CARGO_FEATURE_EMBEDDED_LIBRARY").is_some() {
        checked = checked.and_then(|()| build_library());
    }
    if let Err(refusal) = checked {
        println!("cargo::error={refusal}");
        return;
    }
    if let Some(python) = env::var("DEP_PYTHON_PYO3_CONFIG").ok().map(Python::parse) {
        python.link();
    }
}

fn check_rustc() -> Result<(), String> {
    match version_check::is_min_version("1.88.0") {
        Some(true) => Ok(()),
        _ => Err("localsplus needs rustc 1.88 or later".to_owned()),
    }
}

/// The layouts were read on 64-bit little-endian machines.
fn check_target() -> Result<(), String> {
    let target = |key: &str| env::var(format!("CARGO_CFG_TARGET_{key}")).unwrap_or_default();
    let (width, endian) = (target("POINTER_WIDTH"), target("ENDIAN"));
    if width == "64" && endian == "little" {
        return Ok(());
    }
    Err(format!(
        "localsplus knows CPython's layouts on 64-bit little-endian targets only; \
         this target is {width}-bit, {endian}-endian"
    ))
}

/// Cargo builds the shared library beside every program of the package, but does
/// not say where, and `cargo install` throws it away. So for the feature
/// `embedded-library` it is built once more, in a folder of ours.
fn build_library() -> Result<(), String> {
    for file in ["Cargo.toml", "Cargo.lock", "src"] {
        println!("cargo::rerun-if-changed={file}");
    }
    let variable = |name| env::var_os(name).ok_or_else(|| format!("{name} is not set"));
    let folder = PathBuf::from(variable("OUT_DIR")?).join("library");
    let target = variable("TARGET")?;
    let mut command = Command::new(variable("CARGO")?);
    command
        .args(["rustc", "--quiet", "--locked", "--release", "--lib"])
        .args(["--crate-type", "cdylib"])
        .arg("--target")
        .arg(&target)
        .arg("--target-dir")
        .arg(&folder)
        // Any interpreter shall be able to load it, so it must not need a libpython.
        .env("PYO3_BUILD_EXTENSION_MODULE", "1")
        // Without the feature: cargo lets through what it does not set itself.
        .env_remove("CARGO_FEATURE_EMBEDDED_LIBRARY")
        // Clippy comes in this way.
        .env_remove("RUSTC_WORKSPACE_WRAPPER");
    let status = command.status().map_err(|error| error.to_string())?;
    if !status.success() {
        return Err(format!(
            "the library that the program carries does not build ({status}; its messages are \
             above): leave out the feature embedded-library, and give the program a library \
             with --library"
        ));
    }
    let (prefix, suffix) = match env::var("CARGO_CFG_TARGET_OS").as_deref() {
        Ok("windows") => ("", "dll"),
        Ok("macos") => ("lib", "dylib"),
        _ => ("lib", "so"),
    };
    let folder = folder.join(target).join("release");
    let library = folder.join(format!("{prefix}localsplus.{suffix}"));
    let library = library.display();
    println!("cargo::rustc-env=LOCALSPLUS_EMBEDDED_LIBRARY={library}");
    Ok(())
}

/// What pyo3-ffi's build script found. It hands it on as lines `key=value`.
#[derive(Default)]
struct Python {
    lib_name: Option<String>,
    lib_dir: Option<String>,
    executable: Option<String>,
}

impl Python {
    fn parse(config: String) -> Self {
        let mut python = Self::default();
        for line in unescape(&config).lines() {
            let Some((key, value)) = line.split_once('=') else {
                continue;
            };
            let value = Some(value.to_owned());
            match key {
                "lib_name" => python.lib_name = value,
                "lib_dir" => python.lib_dir = value,
                "executable" => python.executable = value,
                _ => {}
            }
        }
        python
    }

    /// The library itself must not need a libpython; programs in this package
    /// that embed one do.
    fn link(self) {
        let mut arguments = Vec::new();
        if let (Some(directory), Some(name)) = (&self.lib_dir, &self.lib_name)
            && env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux")
            && !Path::new(directory).join(format!("lib{name}.so")).exists()
        {
            println!(
                "cargo::warning=there is no lib{name}.so in {directory}: programs that embed \
                 this Python will not link; on Debian: apt-get install python3-dev, or give \
                 another Python in PYO3_PYTHON"
            );
        }
        if let Some(directory) = &self.lib_dir {
            arguments.push(format!("-L{directory}"));
            arguments.push(format!("-Wl,-rpath,{directory}"));
        }
        if let Some(name) = &self.lib_name {
            arguments.push(format!("-l{name}"));
        }
        if env::var("CARGO_CFG_TARGET_FAMILY").as_deref() == Ok("unix") {
            // Cargo rejects the instruction for a kind that the package lacks.
            for targets in ["examples", "tests", "benches"] {
                if has_targets(Path::new(targets)) {
                    for argument in &arguments {
                        println!("cargo::rustc-link-arg-{targets}={argument}");
                    }
                }
            }
        }
        if let Err(error) = self.link_doc_tests() {
            println!("cargo::warning=the examples in the documentation will not link: {error}");
        }
        if let Some(executable) = self.executable {
            // So that an embedded interpreter finds its standard library.
            println!("cargo::rustc-env=LOCALSPLUS_PYTHON={executable}");
        }
    }
}

/// The name by which the examples in the documentation link libpython.
const DOC_TEST_LIBRARY: &str = "localsplus_doc_test_python";

impl Python {
    /// No instruction of cargo's links a library with doc tests alone. But they
    /// search where the library does, and run with the folders below `OUT_DIR` that
    /// it searches: so a folder there has links to libpython, one of them by a name
    /// that is the same for every version.
    fn link_doc_tests(&self) -> std::io::Result<()> {
        let (Some(directory), Some(name), Some(out)) =
            (&self.lib_dir, &self.lib_name, env::var_os("OUT_DIR"))
        else {
            return Ok(());
        };
        // There are none in the published package.
        if !has_targets(Path::new("tests")) {
            return Ok(());
        }
        let links = Path::new(&out).join("libpython");
        if links.exists() {
            std::fs::remove_dir_all(&links)?;
        }
        std::fs::create_dir(&links)?;
        let macos = env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("macos");
        let suffix = if macos { "dylib" } else { "so" };
        let library = format!("lib{name}.{suffix}");
        for entry in Path::new(directory).read_dir()?.flatten() {
            let file = entry.file_name();
            if file.to_string_lossy().starts_with(&library) {
                link(&entry.path(), &links.join(file))?;
            }
        }
        link(
            &Path::new(directory).join(library),
            &links.join(format!("lib{DOC_TEST_LIBRARY}.{suffix}")),
        )?;
        println!("cargo::rustc-link-search=native={}", links.display());
        Ok(())
    }
}

#[cfg(unix)]
fn link(original: &Path, link: &Path) -> std::io::Result<()> {
    std::os::unix::fs::symlink(original, link)
}

#[cfg(not(unix))]
fn link(original: &Path, link: &Path) -> std::io::Result<()> {
    std::fs::copy(original, link).map(drop)
}

/// Whether cargo finds a target in `directory`: a file, or a folder with a main.
fn has_targets(directory: &Path) -> bool {
    let Ok(entries) = directory.read_dir() else {
        return false;
    };
    let mut paths = entries.flatten().map(|entry| entry.path());
    paths.any(|path| path.extension() == Some("rs".as_ref()) || path.join("main.rs").exists())
}

/// The value is in hexadecimal, since a line cannot hold lines.
fn unescape(config: &str) -> String {
    let byte = |i: usize| u8::from_str_radix(config.get(i..i + 2)?, 16).ok();
    let bytes = (0..config.len()).step_by(2).map_while(byte).collect();
    String::from_utf8(bytes).unwrap_or_default()
}
