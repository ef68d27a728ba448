//! Runs a program that may be anything: it may hang, crash, or talk without end.

use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

/// More output than any interpreter that answers has; the rest is not read.
const MOST_OUTPUT: u64 = 1 << 20;

/// How a program ended, and what it said.
pub struct Ended {
    /// `None` if it was stopped because it took too long.
    pub status: Option<ExitStatus>,
    pub stdout: String,
    pub stderr: String,
}

/// Runs `command` for `timeout` at most, together with what it starts itself.
pub fn run(mut command: Command, timeout: Duration) -> std::io::Result<Ended> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let mut child = command.spawn()?;
    let stdout = child.stdout.take().map(read);
    let stderr = child.stderr.take().map(read);
    let status = wait(&mut child, timeout);
    // Also what it has left running: it may hold the pipes open.
    stop(&mut child);
    let text = |output: Option<Receiver<Vec<u8>>>| {
        let bytes = output.and_then(|output| output.recv_timeout(Duration::from_secs(5)).ok());
        String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned()
    };
    Ok(Ended {
        status,
        stdout: text(stdout),
        stderr: text(stderr),
    })
}

/// Reads in a thread of its own. When enough has been read the pipe is closed,
/// which ends a program that goes on.
fn read(pipe: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // What came before an error is kept.
        let _ = pipe.take(MOST_OUTPUT).read_to_end(&mut bytes);
        // Nobody waits for it any more if it took too long.
        let _ = sender.send(bytes);
    });
    receiver
}

fn wait(child: &mut Child, timeout: Duration) -> Option<ExitStatus> {
    let started = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if started.elapsed() < timeout => thread::sleep(Duration::from_millis(5)),
            _ => return None,
        }
    }
}

fn stop(child: &mut Child) {
    #[cfg(unix)]
    {
        use std::ffi::c_int;

        const SIGKILL: c_int = 9;
        unsafe extern "C" {
            fn kill(process: c_int, signal: c_int) -> c_int;
        }
        if let Ok(process) = c_int::try_from(child.id()) {
            // SAFETY: a negative number is a process group: the one that was made
            // for the child. If all of it has ended, this fails.
            unsafe { kill(-process, SIGKILL) };
        }
    }
    // The first fails if the child has ended; the second collects it if not.
    let _ = child.kill();
    let _ = child.wait();
}
