//! What it all comes to.

/// What is to be said of one interpreter, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// By this provider.
    Works(String),
    /// The library has refused this interpreter.
    Refused(String),
    /// The library reads frames, but not what they hold.
    Wrong(String),
    /// The library cannot be loaded there.
    DoesNotLoad(String),
    /// It ended before the report did.
    Crashed(String),
    TimedOut(String),
    /// It runs, but is no Python.
    NotPython(String),
    DoesNotRun(String),
}

impl Verdict {
    pub fn works(&self) -> bool {
        matches!(self, Self::Works(_))
    }

    /// For machines.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Works(_) => "works",
            Self::Refused(_) => "refused",
            Self::Wrong(_) => "wrong",
            Self::DoesNotLoad(_) => "does-not-load",
            Self::Crashed(_) => "crashed",
            Self::TimedOut(_) => "timed-out",
            Self::NotPython(_) => "not-python",
            Self::DoesNotRun(_) => "does-not-run",
        }
    }

    /// In one line.
    pub fn text(&self) -> String {
        match self {
            Self::Works(provider) => {
                format!("WORKS: localsplus reads frames here, by its provider \"{provider}\"")
            }
            Self::Refused(reason) => format!("REFUSED: {reason}"),
            Self::Wrong(reason) => {
                format!("WRONG: do not use localsplus here, and report this output: {reason}")
            }
            Self::DoesNotLoad(reason) => format!("DOES NOT LOAD: {reason}"),
            Self::Crashed(reason) => format!("CRASHED: {reason}"),
            Self::TimedOut(reason) => format!("TIMED OUT: {reason}"),
            Self::NotPython(reason) => format!("NOT PYTHON: {reason}"),
            Self::DoesNotRun(reason) => format!("DOES NOT RUN: {reason}"),
        }
    }
}
