//! Drives `engine::supervise` without an engine, with programs of the host.
//!
//! The tests of the supervisor run this as a separate process, because forking, signals and
//! terminals cannot be tested inside a test harness with threads. It is also the shortest example
//! of how the parts are used together.
//!
//! ```text
//! supervise run [-i] [-t] [-d] [--log] [--max-size N] [--rm FILE] [--restart N] [--keys K]
//!     DIR CMD...
//! supervise exec|attach|stop|kill|wait|logs|top|pause|unpause|observe DIR ...
//! ```

use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use engine::spec::{LogSpec, RestartPolicy};
use engine::supervise::log::{Query, Stream};
use engine::supervise::{
    AttachOptions, Console, Ended, Error, Failure, Launch, Options, Record, Request, Signal,
    Spawned, Stdio, StopOptions, Waited, state,
};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (verb, rest) = arguments.split_first().expect("a verb");
    let result = match verb.as_str() {
        "run" | "exec" => run(rest, verb == "exec"),
        "attach" => attach(rest),
        "stop" => stop(rest),
        "kill" => {
            let signal = rest[1].parse().expect("a signal");
            engine::supervise::kill(Path::new(&rest[0]), signal).map(|()| 0)
        }
        "wait" => engine::supervise::wait(Path::new(&rest[0]), &|| true).map(|waited| {
            match waited {
                Some(Waited::Code(code)) => println!("{code}"),
                Some(Waited::Unknown) | None => println!("unknown"),
            }
            0
        }),
        "logs" => logs(rest),
        "top" => top(rest),
        "pause" => engine::supervise::pause(Path::new(&rest[0])).map(|()| 0),
        "unpause" => engine::supervise::unpause(Path::new(&rest[0])).map(|()| 0),
        "observe" => state::observe(Path::new(&rest[0])).map(|seen| {
            println!("{seen:?}");
            0
        }),
        // Internal: the child between fork and exec.
        "child" => return child(rest),
        other => panic!("unknown verb {other}"),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("supervise: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

fn ended(ended: Ended) -> u8 {
    match ended {
        Ended::Exited(outcome) => outcome.code as u8,
        Ended::Detached => {
            eprintln!("detached");
            0
        }
    }
}

fn run(arguments: &[String], exec: bool) -> Result<u8, Error> {
    let mut options = Options::exec("test", false, false);
    if !exec {
        options.record = Record::Container;
    }
    let mut detach = false;
    let mut remove = None;
    let mut console = console_settings();
    let mut words = arguments.iter();
    let dir = loop {
        let word = words.next().expect("a directory").as_str();
        let mut value = || words.next().expect("a value").clone();
        match word {
            "-i" => options.stdin_open = true,
            "-t" => options.tty = true,
            "-d" => detach = true,
            "--log" => options.log = Some(LogSpec::default()),
            "--max-size" => {
                let max_size = value().parse().expect("a number");
                options.log = Some(LogSpec { max_size, ..LogSpec::default() });
            }
            "--rm" => remove = Some(value()),
            "--restart" => {
                options.restart = RestartPolicy::OnFailure(value().parse().ok());
            }
            "--stop-signal" => options.stop_signal = value().parse().expect("a signal"),
            "--stop-timeout" => {
                options.stop_timeout = Duration::from_secs(value().parse().expect("seconds"));
            }
            "--keys" => console.0 = value().parse().expect("keys"),
            "--no-proxy" => console.1 = false,
            dir => break PathBuf::from(dir),
        }
    };
    let command: Vec<String> = words.cloned().collect();
    let spawn = Box::new(move |request: Request| spawn(&command, request));
    let cleanup: Option<engine::supervise::Cleanup<'_>> = remove.map(|file| {
        let cleanup = move |outcome: &engine::supervise::Outcome| {
            std::fs::write(&file, outcome.code.to_string()).err().map(|error| error.to_string())
        };
        Box::new(cleanup) as engine::supervise::Cleanup<'_>
    });
    let launch = Launch { dir, options, spawn, observer: None, cleanup };
    if detach {
        let started = engine::supervise::detached(launch)?;
        println!("{} {}", started.pid, started.supervisor);
        return Ok(0);
    }
    let mut notice = notice;
    let console = Console { detach_keys: console.0, sig_proxy: console.1, notice: &mut notice };
    engine::supervise::foreground(launch, console).map(ended)
}

fn console_settings() -> (engine::supervise::DetachKeys, bool) {
    (engine::supervise::DetachKeys::default(), true)
}

fn notice(text: &str) {
    eprint!("notice: {text}\r\n");
}

/// Starts a program of the host, as an engine starts a container's.
fn spawn(command: &[String], request: Request) -> Result<Spawned, Failure> {
    let failure = |exit_code, message: String| Failure { exit_code, message, hint: None };
    let found = command[0].contains('/') && Path::new(&command[0]).exists()
        || std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
            .any(|dir| dir.join(&command[0]).exists());
    if !found {
        return Err(failure(127, format!("{}: not found", command[0])));
    }
    if Path::new(&command[0]).is_dir() {
        return Err(failure(126, format!("{}: is a directory", command[0])));
    }
    let own = std::env::current_exe().map_err(|error| failure(125, error.to_string()))?;
    let mut child = Command::new(own);
    child.arg("child").arg(if request.die_with_parent { "die" } else { "stay" });
    match request.stdio {
        Stdio::Inherit => {
            child.arg("inherit");
        }
        Stdio::Outputs { stdout, stderr } => {
            child.arg("inherit").stdout(stdout).stderr(stderr);
        }
        Stdio::Pipes { stdin, stdout, stderr } => {
            child.arg("session").stdin(stdin).stdout(stdout).stderr(stderr);
        }
        Stdio::Terminal { slave, .. } => {
            let copy = |fd: &OwnedFd| fd.try_clone().expect("a descriptor");
            child.arg("terminal").stdin(copy(&slave)).stdout(copy(&slave)).stderr(slave);
        }
    }
    let child = child.args(command).spawn();
    let child = child.map_err(|error| failure(125, error.to_string()))?;
    let pid = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
    Ok(Spawned::new(pid.expect("a pid")))
}

fn child(arguments: &[String]) -> ExitCode {
    if arguments[0] == "die" {
        let _ =
            rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    }
    match arguments[1].as_str() {
        "session" => drop(rustix::process::setsid()),
        "terminal" => {
            sys::terminal::acquire_controlling(rustix::stdio::stdin()).expect("a terminal");
        }
        _ => {}
    }
    let error = Command::new(&arguments[2]).args(&arguments[3..]).exec();
    eprintln!("{}: {error}", arguments[2]);
    ExitCode::from(126)
}

fn attach(arguments: &[String]) -> Result<u8, Error> {
    let (detach_keys, sig_proxy) = console_settings();
    let input = !arguments.iter().any(|word| word == "--no-stdin");
    let mut notice = notice;
    let console = Console { detach_keys, sig_proxy, notice: &mut notice };
    engine::supervise::attach(Path::new(&arguments[0]), AttachOptions { input }, console).map(ended)
}

fn stop(arguments: &[String]) -> Result<u8, Error> {
    let seconds: i64 = arguments.get(1).map_or(10, |text| text.parse().expect("seconds"));
    let timeout = u64::try_from(seconds).ok().map(Duration::from_secs);
    let options = StopOptions { signal: Signal::TERM, timeout };
    engine::supervise::stop(Path::new(&arguments[0]), options).map(|()| 0)
}

fn logs(arguments: &[String]) -> Result<u8, Error> {
    let mut query = Query::default();
    let mut words = arguments[1..].iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "-f" => query.follow = true,
            "--tail" => query.tail = words.next().and_then(|text| text.parse().ok()),
            other => panic!("unknown flag {other}"),
        }
    }
    let mut out = std::io::BufWriter::new(std::io::stdout());
    let mut errors = std::io::stderr();
    engine::supervise::log::read(Path::new(&arguments[0]), &query, &|| true, &mut |entry| {
        let written = match entry.stream {
            Stream::Stdout => out.write_all(&entry.bytes),
            Stream::Stderr => errors.write_all(&entry.bytes),
        };
        written.is_ok() && (!query.follow || out.flush().is_ok())
    })
    .map(|()| u8::from(out.flush().is_err()))
}

fn top(arguments: &[String]) -> Result<u8, Error> {
    for process in engine::supervise::top(Path::new(&arguments[0]))? {
        println!("{} {} {}", process.stat.pid, process.stat.state, process.command.join(" "));
    }
    Ok(0)
}
