//! What is told on standard error while something is under way: bars on a terminal, plain lines elsewhere.
//!
//! Standard output belongs to the answer alone. On a terminal there is a bar for each part (a layer) and one for
//! the total, with rate and time left; in a pipe one line when a part begins and one when it is done; with
//! `-q` nothing. Whoever does the work sees only [`Part`] and knows nothing of this.

use std::io::{IsTerminal, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::config;
use crate::output::size;

/// A line for people.
pub(crate) fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// How much is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// Nothing.
    Silent,
    /// Lines.
    Plain,
    /// Bars.
    Bars,
}

impl Style {
    /// What fits the user's wish and the terminal.
    pub(crate) fn choose(quiet: bool, wish: config::Progress) -> Self {
        match wish {
            _ if quiet || wish == config::Progress::None => Self::Silent,
            config::Progress::Bar => Self::Bars,
            config::Progress::Auto if std::io::stderr().is_terminal() => Self::Bars,
            _ => Self::Plain,
        }
    }
}

/// One piece of work with several parts.
pub(crate) struct Progress {
    style: Style,
    started: Instant,
    bars: MultiProgress,
    total: Mutex<Option<ProgressBar>>,
    /// Bytes moved by this process.
    moved: AtomicU64,
}

impl Progress {
    /// Nothing is shown yet.
    pub(crate) fn new(style: Style) -> Self {
        let target = match style {
            Style::Bars => ProgressDrawTarget::stderr_with_hz(12),
            _ => ProgressDrawTarget::hidden(),
        };
        Self {
            style,
            started: Instant::now(),
            bars: MultiProgress::with_draw_target(target),
            total: Mutex::new(None),
            moved: AtomicU64::new(0),
        }
    }

    /// A line between the bars.
    pub(crate) fn say(&self, text: &str) {
        match self.style {
            Style::Silent => {}
            Style::Plain => note(text),
            Style::Bars => {
                let _ = self.bars.println(text);
            }
        }
    }

    /// The number of bytes that all parts together will move.
    pub(crate) fn expect(&self, bytes: u64) {
        if self.style == Style::Bars && bytes > 0 {
            let bar = self.bars.add(ProgressBar::new(bytes));
            bar.set_style(style("{prefix:.bold} [{bar:30}] {bytes:>10}/{total_bytes:<10} {bytes_per_sec:>12} {eta:>6} left"));
            bar.set_prefix("total       ");
            *self.lock() = Some(bar);
        }
    }

    /// Begins a part, called `name`, in which `verb` is done with `bytes` bytes, of which `there` are here already.
    pub(crate) fn part(&self, name: &str, verb: &str, bytes: u64, there: u64) -> Part<'_> {
        let bar = match self.style {
            Style::Bars => {
                let bar = ProgressBar::new(bytes).with_position(there);
                bar.set_style(style(
                    "{prefix} [{bar:30.cyan}] {bytes:>10}/{total_bytes:<10} {msg}",
                ));
                bar.set_prefix(name.to_owned());
                let total = self.lock();
                Some(match total.as_ref() {
                    Some(total) => self.bars.insert_before(total, bar),
                    None => self.bars.add(bar),
                })
            }
            _ => None,
        };
        if self.style == Style::Plain {
            let rest = if there > 0 {
                format!(", {} already here", size::human(there))
            } else {
                String::new()
            };
            note(&format!("{name}: {verb} {}{rest}", size::human(bytes)));
        }
        self.advance(there, false);
        if let Some(bar) = &bar {
            bar.set_message(verb.to_owned());
        }
        Part { progress: self, bar, name: name.to_owned(), bytes, started: Instant::now() }
    }

    /// Ends the bars and tells how much came in which time.
    pub(crate) fn finish(&self) {
        if let Some(bar) = self.lock().take() {
            bar.finish_and_clear();
        }
        let moved = self.moved.load(Ordering::Relaxed);
        if moved > 0 {
            let spent = self.started.elapsed();
            self.say(&format!(
                "{} in {}, {}/s",
                size::human(moved),
                seconds(spent),
                rate(moved, spent)
            ));
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<ProgressBar>> {
        self.total.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// So many bytes more, in no particular part.
    pub(crate) fn advance(&self, bytes: u64, moved: bool) {
        if moved {
            self.moved.fetch_add(bytes, Ordering::Relaxed);
        }
        if self.style == Style::Bars
            && let Some(total) = self.lock().as_ref()
        {
            total.inc(bytes);
        }
    }
}

/// One part of the work.
pub(crate) struct Part<'a> {
    progress: &'a Progress,
    bar: Option<ProgressBar>,
    name: String,
    bytes: u64,
    started: Instant,
}

impl Part<'_> {
    /// So many bytes more.
    pub(crate) fn advance(&self, bytes: u64) {
        if let Some(bar) = &self.bar {
            bar.inc(bytes);
        }
        self.progress.advance(bytes, true);
    }

    /// It is done.
    pub(crate) fn done(self) {
        match &self.bar {
            Some(bar) => {
                bar.set_style(style("{prefix} {msg}"));
                bar.finish_with_message(format!("done {}", size::human(self.bytes)));
            }
            None if self.progress.style == Style::Plain => {
                note(&format!("{}: done in {}", self.name, seconds(self.started.elapsed())));
            }
            None => {}
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    let fallback = ProgressStyle::default_bar;
    ProgressStyle::with_template(template).unwrap_or_else(|_| fallback()).progress_chars("=> ")
}

fn seconds(span: Duration) -> String {
    format!("{:.1}s", span.as_secs_f64())
}

fn rate(bytes: u64, span: Duration) -> String {
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    let rate = bytes as f64 / span.as_secs_f64().max(0.001);
    size::human(rate as u64)
}
