//! `login` and `logout`.
//!
//! A password is asked for without echo, or read from standard input.

use std::io::Read;

use containers::Kind;
use containers::images::login::{self, LoggedIn, LoginRequest, Server};
use registry::Secret;
use registry::auth::Credential;

use crate::args::images::{LoginArgs, LogoutArgs};
use crate::args::request;
use crate::context::Context;
use crate::output;
use crate::report::{Exit, Report};
use crate::{prompt, terminal};

/// A longer password is a mistake (a file that was piped in).
const LONGEST: u64 = 64 << 10;

/// A password from the terminal, for `user`.
fn ask_password(user: &str) -> Result<Secret, Report> {
    Ok(prompt::secret(&format!("Password for {user}: "))?)
}

/// `login`.
pub(crate) fn run(context: &Context, args: &LoginArgs) -> Result<Exit, Report> {
    let session = context.session()?;
    let name = args.server.as_deref().or(args.registry.host.as_deref());
    let server = Server::parse(session, name)?;
    if args.get_login {
        return get_login(context, args, &server);
    }
    let registry = server.registry.clone();
    let request = LoginRequest {
        credential: credential(args, &registry)?,
        server,
        unchecked: context.presentation().offline_login,
        registry: request::registry(&args.registry),
    };
    match login::login(session, request)? {
        // udocker says nothing.
        LoggedIn::Unchecked => return Ok(Exit::OK),
        LoggedIn::NotRequired => terminal::note(&format!(
            "{registry} asks for no credentials; they are kept all the same"
        )),
        LoggedIn::Accepted => {}
    }
    output::line("Login Succeeded")?;
    Ok(Exit::OK)
}

fn get_login(context: &Context, args: &LoginArgs, server: &Server) -> Result<Exit, Report> {
    match login::known(context.session()?, server, &request::registry(&args.registry))? {
        Some(Credential::Basic { username, .. }) => output::line(username)?,
        Some(Credential::IdentityToken(_)) => output::line("<token>")?,
        None => {
            let fact = format!("not logged in to {}", server.registry);
            return Err(Report::new(fact).exit(Exit(1)));
        }
    }
    Ok(Exit::OK)
}

fn credential(args: &LoginArgs, registry: &str) -> Result<Credential, Report> {
    if args.password.is_some() && args.password_stdin {
        return Err(Report::usage("--password and --password-stdin exclude each other"));
    }
    let from_flag = |creds: &str| {
        creds.split_once(':').map(|(user, password)| (user.to_owned(), Secret::new(password)))
    };
    if let Some((username, password)) = args.registry.creds.as_deref().and_then(from_flag) {
        return Ok(Credential::Basic { username, password });
    }
    let username = match args.username.clone().or_else(|| args.registry.creds.clone()) {
        Some(username) => username,
        None if args.password_stdin => {
            return Err(Report::usage("--password-stdin needs --username"));
        }
        None => prompt::line(&format!("Username for {registry}: "))?,
    };
    if username.is_empty() {
        return Err(Report::usage("the user name is empty"));
    }
    let password = match &args.password {
        Some(password) => {
            terminal::note(
                "warning: a password on the command line can be seen by every user of this \
                 machine; use --password-stdin",
            );
            Secret::new(password)
        }
        None if args.password_stdin => from_stdin()?,
        None => ask_password(&username)?,
    };
    if password.is_empty() {
        return Err(Report::new("the password is empty"));
    }
    Ok(Credential::Basic { username, password })
}

fn from_stdin() -> Result<Secret, Report> {
    let mut text = String::new();
    std::io::stdin().lock().take(LONGEST).read_to_string(&mut text).map_err(|error| {
        Report::new("cannot read the password from standard input").cause(error)
    })?;
    Ok(Secret::new(text.trim_end_matches(['\n', '\r'])))
}

/// `logout`.
pub(crate) fn logout(context: &Context, args: &LogoutArgs) -> Result<Exit, Report> {
    let session = context.session()?;
    let authfile = args.authfile.as_deref();
    let keys = if args.all {
        login::list(session, authfile)?
    } else {
        vec![Server::parse(session, args.server.as_deref().or(args.host.as_deref()))?.key]
    };
    for key in &keys {
        match login::logout(session, key, authfile) {
            Ok(()) => output::line(format!("Removed login credentials for {key}"))?,
            // As in Docker: what the command is for is the case already.
            Err(error)
                if error.kind() == Kind::NotFound && !context.presentation().logout_needs_login =>
            {
                output::line(format!("Not logged in to {key}"))?;
            }
            Err(error) => return Err(Report::from(error)),
        }
    }
    Ok(Exit::OK)
}
