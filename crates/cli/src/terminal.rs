//! Shows on standard error what operations tell: notes, and bars on a terminal or lines elsewhere.
//!
//! Standard output belongs to the answer alone. On a terminal each part (a layer) has a bar, and
//! the total has one with rate and time left; in a pipe there is one line when a part begins and
//! one when it is done; with `-q` nothing.

use std::collections::HashMap;
use std::io::{IsTerminal, Write};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use containers::config;
use containers::events::{Events, Part, Question};
use containers::{Event, size};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output;

/// A line for people.
pub(crate) fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// What the user wants to see.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shown {
    /// How progress is shown.
    pub progress: config::Progress,
    /// Lines are not shown where bars cannot be.
    pub bars_only: bool,
    /// Waits for other processes are told.
    pub waiting: bool,
    /// udocker's banner is shown before a program starts.
    pub banner: bool,
}

/// How much is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Style {
    /// Nothing.
    Silent,
    /// Lines.
    Plain,
    /// Bars.
    Bars,
}

impl Style {
    /// What fits the setting and the terminal.
    fn choose(setting: config::Progress) -> Self {
        match setting {
            config::Progress::None => Self::Silent,
            config::Progress::Bar => Self::Bars,
            config::Progress::Auto if std::io::stderr().is_terminal() => Self::Bars,
            _ => Self::Plain,
        }
    }
}

/// The listener that writes to the terminal.
pub(crate) struct Terminal {
    shown: Shown,
    /// Looked up when there is something to show.
    style: OnceLock<Style>,
    /// Made by the first piece of work that has something to show.
    bars: Mutex<HashMap<u64, Bars>>,
}

/// The bars of one piece of work.
struct Bars {
    all: MultiProgress,
    total: Option<ProgressBar>,
    parts: HashMap<u64, ProgressBar>,
}

impl Terminal {
    /// Nothing is shown yet.
    pub(crate) fn new(shown: Shown) -> Self {
        Self { shown, style: OnceLock::new(), bars: Mutex::default() }
    }

    fn style(&self) -> Style {
        *self.style.get_or_init(|| match Style::choose(self.shown.progress) {
            Style::Plain if self.shown.bars_only => Style::Silent,
            style => style,
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Bars>> {
        self.bars.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with the bars of a piece of work, where there are bars.
    fn with_bars(&self, work: u64, act: impl FnOnce(&mut Bars)) {
        if self.style() == Style::Bars {
            act(self.lock().entry(work).or_insert_with(Bars::new));
        }
    }

    /// A line about a piece of work, between its bars.
    fn say(&self, work: u64, text: &str) {
        match self.style() {
            Style::Silent => {}
            Style::Plain => note(text),
            Style::Bars => self.with_bars(work, |bars| {
                let _ = bars.all.println(text);
            }),
        }
    }

    fn started(&self, part: &Part<'_>) {
        if self.style() == Style::Plain {
            let rest = if part.present > 0 {
                format!(", {} already here", size::human(part.present))
            } else {
                String::new()
            };
            note(&format!("{}: {} {}{rest}", part.name, part.verb, size::human(part.bytes)));
        }
        self.with_bars(part.work, |bars| bars.start(part));
    }

    fn done(&self, part: &Part<'_>) {
        if self.style() == Style::Plain {
            note(&format!("{}: done in {}", part.name, seconds(part.elapsed)));
        }
        self.with_bars(part.work, |bars| {
            if let Some(bar) = bars.parts.remove(&part.part) {
                bar.set_style(style("{prefix} {msg}"));
                bar.finish_with_message(format!("done {}", size::human(part.bytes)));
            }
        });
    }

    /// Ends the bars and tells how much was moved in which time.
    fn finish(&self, work: u64, moved: u64, elapsed: Duration) {
        self.with_bars(work, |bars| {
            if let Some(bar) = bars.total.take() {
                bar.finish_and_clear();
            }
        });
        if moved > 0 {
            let (moved, rate) = (size::human(moved), rate(moved, elapsed));
            self.say(work, &format!("{moved} in {}, {rate}/s", seconds(elapsed)));
        }
    }
}

impl Bars {
    fn new() -> Self {
        let all = MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(12));
        Self { all, total: None, parts: HashMap::new() }
    }

    fn expect(&mut self, bytes: u64) {
        if let Some(total) = &self.total {
            // One that was replaced would stay on the screen as it is.
            total.inc_length(bytes);
        } else if bytes > 0 {
            let bar = self.all.add(ProgressBar::new(bytes));
            // Decimal, as everywhere else.
            bar.set_style(style(
                "{prefix:.bold} [{bar:30}] {decimal_bytes:>10}/{decimal_total_bytes:<10} {decimal_bytes_per_sec:>12} {eta:>6} left",
            ));
            bar.set_prefix("total       ");
            self.total = Some(bar);
        }
    }

    fn start(&mut self, part: &Part<'_>) {
        let bar = ProgressBar::new(part.bytes).with_position(part.present);
        bar.set_style(style(
            "{prefix} [{bar:30.cyan}] {decimal_bytes:>10}/{decimal_total_bytes:<10} {msg}",
        ));
        bar.set_prefix(part.name.to_owned());
        let bar = match &self.total {
            Some(total) => {
                total.inc(part.present);
                self.all.insert_before(total, bar)
            }
            None => self.all.add(bar),
        };
        bar.set_message(part.verb.to_owned());
        self.parts.insert(part.part, bar);
    }

    fn advance(&self, part: u64, bytes: u64) {
        for bar in self.parts.get(&part).into_iter().chain(&self.total) {
            bar.inc(bytes);
        }
    }
}

impl Events for Terminal {
    fn event(&self, event: &Event<'_>) {
        match event {
            Event::Warning(text) => note(&format!("warning: {text}")),
            Event::Waiting(_) if !self.shown.waiting => {}
            Event::Note(text) | Event::Waiting(text) => note(text),
            // The program's terminal is raw: a line does not return by itself.
            Event::Notice(text) => note(&format!("{text}\r")),
            Event::Starting { container, command } if self.shown.banner => {
                banner(container, command);
            }
            Event::Progress { work, text } => self.say(*work, text),
            Event::Expected { work, bytes } => self.with_bars(*work, |bars| bars.expect(*bytes)),
            Event::PartStarted(part) => self.started(part),
            Event::PartMoved { work, part, bytes } => {
                self.with_bars(*work, |bars| bars.advance(*part, *bytes));
            }
            Event::PartDone(part) => self.done(part),
            Event::WorkDone { work, moved, elapsed } => self.finish(*work, *moved, *elapsed),
            _ => {}
        }
    }

    fn ask(&self, question: &Question<'_>) -> containers::Result<registry::Secret> {
        match question {
            Question::Password { user } => crate::prompt::secret(&format!("Password for {user}: ")),
            _ => Err(containers::Error::unsupported("this question is not known here")),
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

/// Prints udocker's box of stars when a container starts.
fn banner(id: &str, command: &[String]) {
    let line = "*".repeat(78);
    let starting = format!("STARTING {}", id.chars().take(36).collect::<String>());
    let program = command.first().map_or("", |word| word.rsplit('/').next().unwrap_or(word));
    let text = format!(
        "\n {line}\n *{0:76}*\n *{starting:^76}*\n *{0:76}*\n {line}\n executing: {program}\n",
        ""
    );
    // The program itself notices a terminal that is gone.
    let _ = output::print(&text);
}
