//! Tests of programs that draw on the caller's screen, which is virtual: the result is checked by
//! its pixels.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use testkit::skip::{Outcome, need_program};

use crate::integration::users::Daemon;
use crate::integration::world::{Case, World};

pub(crate) const CASES: &[(&str, Case)] = &[("windows_are_drawn", windows_are_drawn)];

/// Draws, and prints if the screen has changed.
const SCRIPT: &str = "
look() { xwd -root -silent | cksum; }
before=$(look)
$1 & program=$!
for try in $(seq 60); do
    [ \"$(look)\" = \"$before\" ] || { echo drawn; break; }
    sleep 0.2
done
kill $program";

fn windows_are_drawn(w: &World) -> Outcome {
    need_program("Xvfb")?;
    let dir = w.dir("screen");
    let key = w.file(&dir.join("key"), key());
    let mut start = w.person.user.command("Xvfb", &w.person.home);
    start.args([
        // Without it the server resets when its last client has gone, and refuses new ones then.
        "-noreset",
        "-displayfd",
        "1",
        "-screen",
        "0",
        "320x240x24",
        "-nolisten",
        "tcp",
        "-auth",
        &key,
    ]);
    let screen = start.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut screen = Daemon(screen.expect("a screen"));
    let mut number = String::new();
    let output = screen.0.stdout.take().expect("its output");
    BufReader::new(output).read_line(&mut number).expect("its number");
    let display = format!(":{}", number.trim());
    let variables = [("DISPLAY", display.as_str()), ("XAUTHORITY", &key)];
    let bind = format!("{key}:{key}:ro");
    let by_hand =
        ["-e", "DISPLAY", "-e", "XAUTHORITY", "-v", "/tmp/.X11-unix:/tmp/.X11-unix", "-v", &bind];
    for (flags, program) in [
        (&by_hand[..], "xclock"),
        (&["--x11"], "xeyes"),
        (&["--hostenv", "--bindhome", "--hostauth"], "xclock"),
    ] {
        let done = w.sh(&variables, flags, &SCRIPT.replace("$1", program));
        assert_eq!(done.ok().out(), "drawn\n", "{flags:?}: {done:?}");
    }
    // The key gave them access.
    let done = w.sh(&variables, &["-e", "DISPLAY"], "xwd -root -silent >/dev/null");
    assert_ne!(done.code(), 0, "{done:?}");
    let done = w.sh(&[("DISPLAY", "")], &["--x11"], "true");
    assert_eq!(done.code(), 125, "{done:?}");
    assert!(done.err().contains("DISPLAY is not set"), "{done:?}");
    Ok(())
}

/// A file for every screen (`FamilyWild`) with one cookie, as `xauth(1)` writes it.
fn key() -> Vec<u8> {
    let mut file = vec![0xff, 0xff];
    for part in [&b""[..], b"", b"MIT-MAGIC-COOKIE-1", b"0123456789abcdef"] {
        file.extend_from_slice(&(part.len() as u16).to_be_bytes());
        file.extend_from_slice(part);
    }
    file
}
