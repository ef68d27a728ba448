//! The shared library that interpreters load.

use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::fs;
use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};

/// `cargo install` keeps the program only, so it can carry the library:
/// build.rs has built it.
#[cfg(feature = "embedded-library")]
const EMBEDDED: Option<&[u8]> = Some(include_bytes!(env!("LOCALSPLUS_EMBEDDED_LIBRARY")));
#[cfg(not(feature = "embedded-library"))]
const EMBEDDED: Option<&[u8]> = None;

pub struct Library {
    pub path: PathBuf,
    pub origin: &'static str,
    /// Goes away with this.
    temporary: Option<PathBuf>,
}

impl Library {
    /// The given one, or the one in this program, or the one that cargo has built
    /// beside it.
    pub fn find(given: Option<&Path>) -> Result<Self, String> {
        if let Some(given) = given {
            let path = fs::canonicalize(given)
                .map_err(|error| format!("--library {}: {error}", given.display()))?;
            return Ok(Self::at(path, "given"));
        }
        if let Some(bytes) = EMBEDDED {
            return Self::written(bytes);
        }
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let folder = program.parent().unwrap_or(Path::new("."));
        let name = format!("{DLL_PREFIX}localsplus{DLL_SUFFIX}");
        // `cargo run` leaves it in the first one.
        let places = [folder.join("deps").join(&name), folder.join(&name)];
        let found = places.iter().find(|place| place.is_file());
        let path = found.ok_or_else(|| {
            let places = places.each_ref().map(|place| place.display().to_string());
            format!(
                "no localsplus library: there is neither {}, and this program was built \
                 without one in it. Give one with --library, or build the program with one: \
                 PYO3_BUILD_EXTENSION_MODULE=1 cargo install localsplus --features embedded-library",
                places.join(" nor ")
            )
        })?;
        Ok(Self::at(path.clone(), "beside the program"))
    }

    fn at(path: PathBuf, origin: &'static str) -> Self {
        Self {
            path,
            origin,
            temporary: None,
        }
    }

    /// In a folder that only this user can write to.
    fn written(bytes: &[u8]) -> Result<Self, String> {
        let failed = |path: &Path, error: &Error| {
            format!(
                "{}: {error} (TMPDIR says where to write it)",
                path.display()
            )
        };
        let mut builder = fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        let mut attempt = 0;
        let folder = loop {
            let name = format!("localsplus-doctor-{}-{attempt}", std::process::id());
            let folder = std::env::temp_dir().join(name);
            match builder.create(&folder) {
                Ok(()) => break folder,
                // Left behind by an earlier one, or somebody else's.
                Err(error) if error.kind() == ErrorKind::AlreadyExists && attempt < 100 => {
                    attempt += 1;
                }
                Err(error) => return Err(failed(&folder, &error)),
            }
        };
        let library = Self {
            path: folder.join(format!("{DLL_PREFIX}localsplus{DLL_SUFFIX}")),
            origin: "built in",
            temporary: Some(folder),
        };
        fs::write(&library.path, bytes).map_err(|error| failed(&library.path, &error))?;
        Ok(library)
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        if let Some(folder) = &self.temporary {
            // What cannot be removed is left to whoever cleans that place.
            let _ = fs::remove_dir_all(folder);
        }
    }
}
