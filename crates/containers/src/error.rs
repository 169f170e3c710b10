//! Defines the one error of this crate: the kind of failure, its causes, and what can be done.
//!
//! A front end decides by [`Error::kind`] what a failure means to its caller (an exit code, an HTTP
//! status) and shows [`Error::fact`], [`Error::causes`] and [`Error::hint`]. Errors of the
//! libraries beneath are kept as they are, with their steps; [`Error::within`] puts the operation
//! in front.

use std::fmt;

/// Result with this crate's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What kind of failure an [`Error`] is.
///
/// | kind | HTTP |
/// |---|---|
/// | [`Invalid`](Self::Invalid) | 400 |
/// | [`Denied`](Self::Denied) | 403 |
/// | [`NotFound`](Self::NotFound) | 404 |
/// | [`Conflict`](Self::Conflict) | 409 |
/// | [`Cancelled`](Self::Cancelled) | 499 |
/// | [`Failed`](Self::Failed) | 500 |
/// | [`Unsupported`](Self::Unsupported) | 501 |
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The request makes no sense, whatever the state of the store.
    Invalid,
    /// The object is protected, or belongs to another program.
    Denied,
    /// An object that the request names does not exist.
    NotFound,
    /// The state of an object forbids the operation: it is running, or a name is in use.
    Conflict,
    /// The caller cancelled the operation.
    Cancelled,
    /// A step failed that was expected to work.
    Failed,
    /// This host, or this process, cannot do what is asked.
    Unsupported,
}

/// A failure that this crate found itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    fact: String,
    causes: Vec<String>,
    hint: Option<String>,
}

/// Why an operation did not succeed.
#[derive(Debug)]
pub enum Error {
    /// The request makes no sense, whatever the state of the store.
    Invalid(Box<Problem>),
    /// The object is protected, or belongs to another program.
    Denied(Box<Problem>),
    /// An object that the request names does not exist.
    NotFound(Box<Problem>),
    /// The state of an object forbids the operation.
    Conflict(Box<Problem>),
    /// The caller cancelled the operation.
    Cancelled(Box<Problem>),
    /// This host, or this process, cannot do what is asked.
    Unsupported(Box<Problem>),
    /// A step of this crate's own failed.
    Failed(Box<Problem>),
    /// An operation of a wider meaning failed.
    During {
        /// What was being done: "cannot pull debian".
        step: String,
        /// Why it failed.
        source: Box<Error>,
        /// What can be done, where the source does not say.
        hint: Option<String>,
    },
    /// A configuration file or variable cannot be used.
    Config(Box<crate::config::Error>),
    /// Planning or starting a program.
    Engine(Box<engine::Error>),
    /// Supervising a program.
    Supervise(Box<engine::supervise::Error>),
    /// Probing the host.
    Host(Box<host::Error>),
    /// A name, digest, manifest or configuration of an image.
    Oci(Box<oci::Error>),
    /// A registry or an image archive.
    Registry(Box<registry::Error>),
    /// A network with a name.
    Net(Box<net::Error>),
    /// A layer or a tree.
    Rootfs(Box<rootfs::Error>),
    /// The store.
    Store(Box<store::Error>),
}

macro_rules! problems {
    ($($(#[$doc:meta])* $name:ident = $variant:ident;)+) => {$(
        $(#[$doc])*
        pub fn $name(fact: impl Into<String>) -> Self {
            Self::$variant(Problem::boxed(fact.into()))
        }
    )+};
}

impl Error {
    problems! {
        /// The request makes no sense.
        invalid = Invalid;
        /// The object is protected, or belongs to another program.
        denied = Denied;
        /// An object that the request names does not exist.
        not_found = NotFound;
        /// The state of an object forbids the operation.
        conflict = Conflict;
        /// The caller cancelled the operation.
        cancelled = Cancelled;
        /// This host, or this process, cannot do what is asked.
        unsupported = Unsupported;
        /// A step failed.
        failed = Failed;
    }

    /// Adds a cause, and all that caused it.
    #[must_use]
    pub fn cause(self, error: impl std::error::Error) -> Self {
        self.chain(&error)
    }

    /// Adds a cause in words.
    #[must_use]
    pub fn because(mut self, cause: impl Into<String>) -> Self {
        self.problem().causes.push(cause.into());
        self
    }

    /// Says what can be done. The first hint that is given stays.
    #[must_use]
    pub fn with_hint(self, hint: impl Into<String>) -> Self {
        if self.hint().is_some() {
            return self;
        }
        let hint = hint.into();
        match self {
            Self::During { step, source, .. } => Self::During { step, source, hint: Some(hint) },
            mut other => {
                other.problem().hint = Some(hint);
                other
            }
        }
    }

    /// Puts the operation in front whose step has failed; the kind stays.
    #[must_use]
    pub fn within(self, step: impl Into<String>) -> Self {
        Self::During { step: step.into(), source: Box::new(self), hint: None }
    }

    /// An error of a library beneath that has no variant of its own.
    pub fn of(error: &(dyn std::error::Error + 'static)) -> Self {
        let made = Self::failed(error.to_string());
        match error.source() {
            Some(source) => made.chain(source),
            None => made,
        }
    }

    /// What kind of failure it is.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Invalid(_) | Self::Config(_) | Self::Oci(_) => Kind::Invalid,
            Self::Denied(_) => Kind::Denied,
            Self::NotFound(_) => Kind::NotFound,
            Self::Conflict(_) => Kind::Conflict,
            Self::Cancelled(_) => Kind::Cancelled,
            Self::Unsupported(_) => Kind::Unsupported,
            Self::Failed(_) | Self::Host(_) | Self::Rootfs(_) => Kind::Failed,
            Self::During { source, .. } => source.kind(),
            Self::Engine(error) => of_engine(error),
            Self::Supervise(error) => of_supervise(error),
            Self::Net(error) => of_net(error),
            Self::Registry(error) => of_registry(error),
            Self::Store(error) => of_store(error),
        }
    }

    /// What failed, in one line.
    pub fn fact(&self) -> String {
        match self {
            Self::During { step, .. } => step.clone(),
            _ => match self.library() {
                Some(error) => error.to_string(),
                None => self.own().map(|problem| problem.fact.clone()).unwrap_or_default(),
            },
        }
    }

    /// Why, the nearest cause first. A cause is left out whose text is part of the line before.
    pub fn causes(&self) -> Vec<String> {
        let mut causes = Vec::new();
        match self {
            Self::During { source, .. } => {
                causes.push(source.fact());
                causes.extend(source.causes());
            }
            _ => match (self.library(), self.own()) {
                (Some(error), _) => {
                    if let Some(source) = error.source() {
                        extend(&mut causes, &error.to_string(), source);
                    }
                }
                (None, Some(problem)) => causes.clone_from(&problem.causes),
                (None, None) => {}
            },
        }
        causes
    }

    /// What can be done about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::During { source, hint, .. } => source.hint().or_else(|| hint.clone()),
            Self::Config(error) => error.hint(),
            Self::Engine(error) => error.hint(),
            Self::Supervise(error) => error.hint(),
            Self::Host(error) => error.hint(),
            Self::Net(error) => error.hint(),
            Self::Oci(error) => error.hint(),
            Self::Registry(error) => error.hint(),
            Self::Rootfs(error) => error.hint(),
            Self::Store(error) => error.hint(),
            _ => self.own().and_then(|problem| problem.hint.clone()),
        }
    }

    /// The error that an operation began with, without the operations in front.
    pub fn innermost(&self) -> &Self {
        match self {
            Self::During { source, .. } => source.innermost(),
            other => other,
        }
    }

    fn own(&self) -> Option<&Problem> {
        match self {
            Self::Invalid(problem)
            | Self::Denied(problem)
            | Self::NotFound(problem)
            | Self::Conflict(problem)
            | Self::Cancelled(problem)
            | Self::Unsupported(problem)
            | Self::Failed(problem) => Some(problem),
            _ => None,
        }
    }

    fn library(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(match self {
            Self::Config(error) => &**error,
            Self::Engine(error) => &**error,
            Self::Supervise(error) => &**error,
            Self::Host(error) => &**error,
            Self::Net(error) => &**error,
            Self::Oci(error) => &**error,
            Self::Registry(error) => &**error,
            Self::Rootfs(error) => &**error,
            Self::Store(error) => &**error,
            _ => return None,
        })
    }

    /// The problem to add a cause or a hint to; an error of a library becomes one of its kind.
    fn problem(&mut self) -> &mut Problem {
        if self.own().is_none() {
            let (kind, fact) = (self.kind(), self.fact());
            let problem = Box::new(Problem { fact, causes: self.causes(), hint: self.hint() });
            *self = match kind {
                Kind::Invalid => Self::Invalid(problem),
                Kind::Denied => Self::Denied(problem),
                Kind::NotFound => Self::NotFound(problem),
                Kind::Conflict => Self::Conflict(problem),
                Kind::Cancelled => Self::Cancelled(problem),
                Kind::Failed => Self::Failed(problem),
                Kind::Unsupported => Self::Unsupported(problem),
            };
        }
        match self {
            Self::Invalid(problem)
            | Self::Denied(problem)
            | Self::NotFound(problem)
            | Self::Conflict(problem)
            | Self::Cancelled(problem)
            | Self::Unsupported(problem)
            | Self::Failed(problem) => problem,
            _ => unreachable!("it has just been made a problem"),
        }
    }

    fn chain(mut self, error: &dyn std::error::Error) -> Self {
        let problem = self.problem();
        let above = problem.causes.last().unwrap_or(&problem.fact).clone();
        extend(&mut problem.causes, &above, error);
        self
    }
}

impl Problem {
    fn boxed(fact: String) -> Box<Self> {
        Box::new(Self { fact, causes: Vec::new(), hint: None })
    }
}

/// Adds an error and what caused it. `above` is the text that it stands below.
fn extend(causes: &mut Vec<String>, above: &str, error: &dyn std::error::Error) {
    let mut above = above.to_owned();
    let mut next = Some(error);
    while let Some(error) = next {
        let text = error.to_string();
        if !text.is_empty() && !above.contains(&text) {
            above.clone_from(&text);
            causes.push(text);
        }
        next = error.source();
    }
}

fn of_engine(error: &engine::Error) -> Kind {
    use engine::Error as E;
    match error {
        E::Invalid { .. }
        | E::UnknownMode { .. }
        | E::NoSuchAccount { .. }
        | E::UnmappedId { .. }
        | E::ImpossibleId { .. } => Kind::Invalid,
        E::Unsupported { .. }
        | E::Unusable { .. }
        | E::NoEngine(_)
        | E::Missing { .. }
        | E::Narrow { .. }
        | E::Nested { .. } => Kind::Unsupported,
        E::NotRunning(_) | E::Elsewhere(_) => Kind::Conflict,
        _ => Kind::Failed,
    }
}

fn of_supervise(error: &engine::supervise::Error) -> Kind {
    use engine::supervise::Error as E;
    match error {
        E::NotRunning
        | E::NoSupervisor
        | E::Elsewhere(_)
        | E::NotGone { .. }
        | E::OtherHost { .. }
        | E::Paused
        | E::NotPaused
        | E::Busy => Kind::Conflict,
        _ => Kind::Failed,
    }
}

fn of_net(error: &net::Error) -> Kind {
    use net::Error as E;
    match error {
        E::NotFound { .. } => Kind::NotFound,
        E::Exists { .. }
        | E::InUse { .. }
        | E::Overlaps { .. }
        | E::Routed { .. }
        | E::Taken { .. }
        | E::PortTaken { .. }
        | E::Full { .. }
        | E::NoPlace { .. }
        | E::NotListed { .. }
        | E::NotCluster { .. }
        | E::Moves { .. }
        | E::TwoPlaces { .. }
        | E::NotServed { .. }
        | E::NoPort { .. }
        | E::NoSubnet { .. }
        | E::NoSlot { .. } => Kind::Conflict,
        E::BadName { .. }
        | E::Ambiguous { .. }
        | E::BadSubnet { .. }
        | E::BadGateway { .. }
        | E::BadAuxiliary { .. }
        | E::BadRange { .. }
        | E::ForeignAddress { .. }
        | E::NoAddress { .. }
        | E::NotInCluster { .. }
        | E::List { .. }
        | E::TooMany { .. }
        | E::BadAddress { .. } => Kind::Invalid,
        E::Scope { .. } => Kind::Unsupported,
        E::Store { source, .. } => of_store(source),
        _ => Kind::Failed,
    }
}

fn of_registry(error: &registry::Error) -> Kind {
    match error {
        registry::Error::NotFound { .. } => Kind::NotFound,
        _ => Kind::Failed,
    }
}

fn of_store(error: &store::Error) -> Kind {
    use store::Error as E;
    match error {
        E::NoImage { .. } | E::NoContainer { .. } | E::NoVolume { .. } | E::NoBlob { .. } => {
            Kind::NotFound
        }
        E::ImageInUse { .. } | E::NameInUse { .. } | E::Busy { .. } => Kind::Conflict,
        E::BadName { .. } | E::AmbiguousImage { .. } | E::AmbiguousContainer { .. } => {
            Kind::Invalid
        }
        E::Stopped { .. } => Kind::Cancelled,
        E::ReadOnly { .. } => Kind::Denied,
        _ => Kind::Failed,
    }
}

impl fmt::Display for Error {
    /// The fact and all causes in one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.fact())?;
        self.causes().iter().try_for_each(|cause| write!(f, ": {cause}"))
    }
}

impl std::error::Error for Error {}

macro_rules! from_library {
    ($($error:ty => $variant:ident,)+) => {$(
        impl From<$error> for Error {
            fn from(error: $error) -> Self {
                Self::$variant(Box::new(error))
            }
        }
    )+};
}

from_library! {
    crate::config::Error => Config,
    engine::Error => Engine,
    engine::supervise::Error => Supervise,
    host::Error => Host,
    net::Error => Net,
    oci::Error => Oci,
    registry::Error => Registry,
    rootfs::Error => Rootfs,
    store::Error => Store,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot open /x: {source}")]
    struct Repeats {
        source: std::io::Error,
    }

    #[test]
    fn causes_that_repeat_are_left_out() {
        let error = Error::of(&Repeats { source: std::io::Error::other("no luck") });
        assert_eq!(error.to_string(), "cannot open /x: no luck");
        let error = error.because("more").within("cannot pull");
        assert_eq!(error.to_string(), "cannot pull: cannot open /x: no luck: more");
        assert_eq!((error.kind(), error.hint()), (Kind::Failed, None));
    }

    #[test]
    fn the_first_hint_stays_and_the_kind_too() {
        let error = Error::conflict("it runs").with_hint("stop it").within("cannot remove it");
        let error = error.with_hint("another");
        assert_eq!(error.hint().as_deref(), Some("stop it"));
        assert_eq!((error.kind(), error.fact().as_str()), (Kind::Conflict, "cannot remove it"));
        let none = store::Error::NoImage { name: "x".into() };
        assert_eq!(Error::from(none).within("cannot run it").kind(), Kind::NotFound);
    }
}
