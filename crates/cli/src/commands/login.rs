//! `login` and `logout`.
//!
//! A password is asked for without echo, or read from standard input. It goes into the file (0600) or the helper that the
//! file names, and nowhere else: never into an error, a log, or another program's arguments.

use std::io::Read;

use containers::images::remote;
use registry::Secret;
use registry::auth::{self, Credential};

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

/// The registry as its credentials are filed: Docker Hub under its one name.
fn server(context: &Context, name: Option<&str>) -> Result<String, Report> {
    let Some(name) = name else { return Ok(context.settings()?.default_registry.clone()) };
    let bare = name.trim_start_matches("https://").trim_start_matches("http://");
    let host = bare.split('/').next().unwrap_or(bare);
    // Only a registry's name makes a reference together with a repository's.
    let whole = format!("{}/x", bare.trim_end_matches('/'));
    if host.is_empty() || oci::Reference::parse(&whole).is_err() {
        let report = Report::usage(format!("'{name}' is no registry"));
        return Err(report.hint("write HOST or HOST:PORT"));
    }
    match host {
        "docker.io" | "index.docker.io" | "registry-1.docker.io" | "hub.docker.com" => {
            Ok("docker.io".to_owned())
        }
        // Credentials may be kept for a part of a registry, as in Podman.
        _ => Ok(bare.trim_end_matches('/').to_owned()),
    }
}

/// `login`.
pub(crate) fn run(context: &Context, args: &LoginArgs) -> Result<Exit, Report> {
    let key = server(context, args.server.as_deref().or(args.registry.host.as_deref()))?;
    let registry = key.split('/').next().unwrap_or(&key).to_owned();
    let file = remote::auth_file(context.session()?, args.registry.authfile.as_deref())?;
    if args.get_login {
        return get_login(context, args, &registry);
    }
    let credential = credential(args, &registry)?;
    if context.presentation().offline_login {
        // udocker keeps them without asking anybody, also where there is no network.
        auth::store(&file, &key, &credential)?;
        return Ok(Exit::OK);
    }
    let client = remote::client(context.session()?, &request::registry(&args.registry), &registry)?;
    let login = client
        .login(&registry, Some(&credential))
        .map_err(|error| Report::from(error).within(format!("cannot log in to {registry}")))?;
    if !login.required {
        terminal::note(&format!("{registry} asks for no credentials; they are kept all the same"));
    }
    let kept = login.identity_token.map_or(credential, Credential::IdentityToken);
    auth::store(&file, &key, &kept)?;
    output::line("Login Succeeded")?;
    Ok(Exit::OK)
}

fn get_login(context: &Context, args: &LoginArgs, registry: &str) -> Result<Exit, Report> {
    let client = remote::client(context.session()?, &request::registry(&args.registry), registry)?;
    match client.settings().credentials.find(registry, None)? {
        Some(Credential::Basic { username, .. }) => output::line(username)?,
        Some(Credential::IdentityToken(_)) => output::line("<token>")?,
        None => return Err(Report::new(format!("not logged in to {registry}")).exit(Exit(1))),
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
                "warning: a password on the command line can be seen by every user of this machine; use --password-stdin",
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
    let file = remote::auth_file(context.session()?, args.authfile.as_deref())?;
    let keys = if args.all {
        auth::list(&file)?
    } else {
        vec![server(context, args.server.as_deref().or(args.host.as_deref()))?]
    };
    for key in &keys {
        if !auth::remove(&file, key)? {
            return Err(Report::new(format!("not logged in to {key}"))
                .because(format!("{} knows nothing of it", file.display()))
                .hint("what Docker or Podman keep is changed by their own logout")
                .exit(Exit(1)));
        }
        output::line(format!("Removed login credentials for {key}"))?;
    }
    Ok(Exit::OK)
}
