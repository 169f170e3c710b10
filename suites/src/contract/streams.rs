//! Tests of standard input and output: every byte, in order, and nothing from Coracle.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::process::Stdio;

use serde_json::json;
use testkit::command::{Input, run_with};
use testkit::skip::Outcome;
use testkit::users::Setting;

use crate::contract::world::{Case, LIMIT, World, json as parse};

pub(crate) const CASES: &[(&str, Case)] = &[
    ("input_with_i", input_with_i),
    ("no_input_without_i", no_input_without_i),
    ("input_from_a_file", input_from_a_file),
    ("closed_input", closed_input),
    ("output_is_whole", output_is_whole),
    ("output_and_errors_stay_apart", output_and_errors_stay_apart),
    ("one_output_alone", one_output_alone),
    ("no_output_of_coracle_in_between", no_output_of_coracle_in_between),
    ("output_into_a_file", output_into_a_file),
    ("a_reader_that_closes_the_pipe", a_reader_that_closes_the_pipe),
    ("end_of_input_arrives", end_of_input_arrives),
];

const VERBS: [&[&str]; 2] = [&["run"], &["run", "--rm"]];

fn input_with_i(w: &World) -> Outcome {
    let bytes: Vec<u8> =
        (0..3_000_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for verb in VERBS {
        let words = w.words_for(verb, &["-i"], &["cat"]);
        let done = run_with(&mut w.command(&words), Input::Bytes(bytes.clone()), LIMIT);
        assert!(
            done.code() == 0 && done.stdout == bytes,
            "{verb:?}: {} bytes back",
            done.stdout.len()
        );
    }
    Ok(())
}

fn no_input_without_i(w: &World) -> Outcome {
    for verb in VERBS {
        let words = w.words_for(verb, &[], &["count"]);
        let done = run_with(&mut w.command(&words), Input::Bytes(b"not for it".to_vec()), LIMIT);
        assert_eq!(done.ok().line(), "0", "as Docker: {verb:?}");
    }
    Ok(())
}

fn input_from_a_file(w: &World) -> Outcome {
    let dir = w.dir("stdin");
    let file = w.file(&dir, "in", &"x".repeat(100_000));
    let mut command = w.command(&w.words(&["-i"], &["count"]));
    command.stdin(OpenOptions::new().read(true).open(file).expect("the file"));
    assert_eq!(run_with(&mut command, Input::AsIs, LIMIT).ok().line(), "100000");
    Ok(())
}

fn closed_input(w: &World) -> Outcome {
    let setting = Setting { closed_stdin: true, ..Setting::default() };
    for verb in VERBS {
        for flags in [[].as_slice(), &["-i"]] {
            let words = w.words_for(verb, flags, &["fds"]);
            let fds = parse(&run_with(&mut w.command_in(&setting, &words), Input::Null, LIMIT));
            // The guest's own runtime opens /dev/null if the number is free.
            let zero = fds.get("0").cloned().unwrap_or(json!("/dev/null"));
            assert_eq!(zero, json!("/dev/null"), "something of ours became standard input: {fds}");
        }
    }
    Ok(())
}

fn output_is_whole(w: &World) -> Outcome {
    for verb in VERBS {
        let done = w.coracle(&w.words_for(verb, &[], &["flood", "16"]));
        assert_eq!(done.ok().stdout.len(), 16 << 20, "{verb:?}");
        let last = done
            .stdout
            .rchunks(64)
            .next()
            .map(String::from_utf8_lossy)
            .unwrap_or_default()
            .into_owned();
        assert_eq!(last.trim(), format!("{:063}", (16 << 20) / 64 - 1));
    }
    Ok(())
}

fn output_and_errors_stay_apart(w: &World) -> Outcome {
    for verb in VERBS {
        let words = w.words_for(
            verb,
            &[],
            &["say", "out", ";", "complain", "err", ";", "flood", "2", "2", ";", "say", "end"],
        );
        let done = w.coracle(&words);
        assert_eq!(done.ok().out(), "out\nend\n");
        assert_eq!(done.stderr.len(), (2 << 20) + 4);
    }
    Ok(())
}

/// `--attach` of one output leaves the other out; errors of the start are told all the same.
fn one_output_alone(w: &World) -> Outcome {
    for verb in VERBS {
        let run = |flags: &[&str], words: &[&str]| w.coracle(&w.words_for(verb, flags, words));
        let both = ["say", "out", ";", "complain", "err"];
        for (flag, out, err) in [("--attach=stdout", "out\n", ""), ("--attach=STDERR", "", "err\n")]
        {
            let done = run(&[flag], &both);
            assert_eq!((done.ok().out().as_str(), done.err().as_str()), (out, err), "{done:?}");
        }
        let done = run(&["-a", "stdout", "-a", "stderr"], &both);
        assert_eq!((done.ok().out().as_str(), done.err().as_str()), ("out\n", "err\n"));
        let done = run(&["-a", "stdout", "--user=nobody-here"], &both);
        assert!(done.expect(125).err().contains("nobody-here"), "{done:?}");
        for flags in [&["-a", "stdin"][..], &["-a", "stdio"], &["-d", "-a", "stdout"]] {
            assert!(run(flags, &both).expect(125).err().contains("hint: "), "{flags:?}");
        }
    }
    Ok(())
}

fn no_output_of_coracle_in_between(w: &World) -> Outcome {
    for verb in [["run"].as_slice(), &["run", "--rm"], &["run", "--rm", "--init"]] {
        let done = w.coracle(&w.words_for(verb, &[], &["say", "only", "this"]));
        assert_eq!(
            (done.ok().out(), done.err()),
            ("only this\n".into(), String::new()),
            "{verb:?}"
        );
    }
    Ok(())
}

/// Output must be appended: batch systems set a file as standard output.
fn output_into_a_file(w: &World) -> Outcome {
    let dir = w.dir("stdout");
    let path = w.file(&dir, "out", "first\n");
    for verb in VERBS {
        let mut file = OpenOptions::new().append(true).open(&path).expect("the file");
        writeln!(file, "before").expect("writing");
        let mut command = w.command(&w.words_for(verb, &[], &["say", "from the guest"]));
        command.stdin(Stdio::null()).stdout(file).stderr(Stdio::inherit());
        assert!(command.status().expect("running").success());
    }
    let text = std::fs::read_to_string(path).expect("the file");
    assert_eq!(text, "first\nbefore\nfrom the guest\nbefore\nfrom the guest\n");
    Ok(())
}

fn a_reader_that_closes_the_pipe(w: &World) -> Outcome {
    for verb in VERBS {
        let mut run = testkit::running::Running::start(&mut w.command(&w.words_for(
            verb,
            &[],
            &["flood", "300"],
        )));
        run.expect("0001");
        run.close_output();
        let code = run.end(std::time::Duration::from_secs(30));
        assert!(code != -1, "{verb:?}: went on writing for nobody");
    }
    Ok(())
}

fn end_of_input_arrives(w: &World) -> Outcome {
    for verb in VERBS {
        let words = w.words_for(verb, &["-i"], &["cat"]);
        let mut run = testkit::running::Running::start(&mut w.command(&words));
        run.feed(b"a line\n");
        run.expect("a line");
        run.end_of_input();
        assert_eq!(run.end(std::time::Duration::from_secs(10)), 0, "{verb:?}");
    }
    Ok(())
}
