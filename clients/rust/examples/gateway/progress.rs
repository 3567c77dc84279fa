//! A progress bar: redrawn in place on a terminal; otherwise plain lines.

use std::io::{IsTerminal, Write, stdout};

const WIDTH: usize = 30;

/// The progress of a sync.
pub struct Bar {
    terminal: bool,
    drawn: bool,
}

impl Bar {
    pub fn new() -> Self {
        Self { terminal: stdout().is_terminal(), drawn: false }
    }

    /// Shows that `done` of `total` files are done; nothing while the total is unknown.
    pub fn show(&mut self, done: i32, total: i32) {
        let (Ok(done), Ok(total)) = (usize::try_from(done), usize::try_from(total)) else { return };
        if total == 0 {
            return;
        }
        let full = WIDTH * done.min(total) / total;
        let text = format!("[{:-<WIDTH$}] {done}/{total} files", "#".repeat(full));
        if self.terminal {
            print!("\r{text}\x1b[K");
            // An error while drawing the bar is ignored.
            let _ = stdout().flush();
            self.drawn = true;
        } else {
            println!("{text}");
        }
    }

    /// Prints a line below the bar, if there is one.
    pub fn line(&mut self, text: &str) {
        if std::mem::take(&mut self.drawn) {
            println!();
        }
        println!("{text}");
    }
}
