//! Tests of programs that call udocker, with their own command lines.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use testkit::command::{Finished, Input, run_with};
use testkit::docker_registry::DockerRegistry;
use testkit::skip::{Outcome, Skip};
use testkit::tools;

use crate::udocker::world::{Case, IMAGE, World, image};

pub(crate) const CASES: &[(&str, Case)] = &[
    ("cwltool", cwltool),
    ("cwltool_fails_with_the_program", cwltool_fails_with_the_program),
    ("miniwdl", miniwdl),
    ("nextflow", nextflow),
    ("scar", scar),
    ("stimela", stimela),
];

/// Python starts slowly, and these programs start udocker several times.
const LIMIT: Duration = Duration::from_mins(4);

/// Runs one of the Python programs that `cargo xtask setup` installs.
fn python(w: &World, dir: &Path, program: &str, words: &[&str]) -> Result<Finished, Skip> {
    let packages = tools::python()?;
    let program = packages.join("bin").join(program).display().to_string();
    let path = packages.display().to_string();
    if w.shell(&[], &format!("test -r '{program}'")).code() != 0 {
        testkit::skip!("the test users cannot read {program}");
    }
    let variables = [("PYTHONPATH", path.as_str()), ("PYTHONDONTWRITEBYTECODE", "1")];
    let mut all = vec![program.as_str()];
    all.extend(words);
    let mut command = w.other("/usr/bin/python3", &variables, &all);
    command.current_dir(dir);
    Ok(run_with(&mut command, Input::Null, LIMIT))
}

const STEP: &str = "cwlVersion: v1.0
class: CommandLineTool
baseCommand: [sh, -c, 'cat \"$0\" - | tr a-z A-Z; echo $HOME >&2', ]
hints:
  DockerRequirement:
    dockerPull: localhost/sci/tools:1
stdin: $(inputs.more.path)
stdout: $(inputs.text.nameroot).out
stderr: messages
inputs:
  text: {type: File, inputBinding: {position: 1}}
  more: File
outputs:
  shouted: stdout
  said: stderr
";

const FLOW: &str = "cwlVersion: v1.0
class: Workflow
requirements:
  ScatterFeatureRequirement: {}
inputs:
  texts: File[]
  more: File
outputs:
  all: {type: 'File[]', outputSource: step/shouted}
steps:
  step:
    run: step.cwl
    scatter: text
    in: {text: texts, more: more}
    out: [shouted, said]
";

/// A workflow with scatter, over files with spaces in their names, with redirected streams.
fn cwltool(w: &World) -> Outcome {
    let dir = w.dir("cwl");
    w.file(&dir.join("step.cwl"), STEP);
    w.file(&dir.join("flow.cwl"), FLOW);
    let mut job = String::from("more: {class: File, path: 'mo re.txt'}\ntexts:\n");
    w.file(&dir.join("mo re.txt"), "more\n");
    for n in 0..3 {
        let name = format!("in put {n}.txt");
        w.file(&dir.join(&name), format!("text {n}\n"));
        let _ = writeln!(job, "- {{class: File, path: '{name}'}}");
    }
    w.file(&dir.join("job.yml"), job);
    let words = [
        "--user-space-docker-cmd=udocker",
        "--relax-path-checks",
        "--parallel",
        "--outdir=out",
        "flow.cwl",
        "job.yml",
    ];
    let done = python(w, &dir, "cwltool", &words)?;
    done.ok();
    for n in 0..3 {
        let text = fs::read_to_string(dir.join(format!("out/in put {n}.out")));
        assert_eq!(text.expect("an output"), format!("TEXT {n}\nMORE\n"), "{done:?}");
    }
    Ok(())
}

fn cwltool_fails_with_the_program(w: &World) -> Outcome {
    let dir = w.dir("cwl-fails");
    let tool = "cwlVersion: v1.0
class: CommandLineTool
baseCommand: [sh, -c, 'exit 33']
hints:
  DockerRequirement: {dockerPull: 'localhost/sci/tools:1'}
inputs: []
outputs: []
";
    w.file(&dir.join("fails.cwl"), tool);
    let done = python(w, &dir, "cwltool", &["--user-space-docker-cmd=udocker", "fails.cwl"])?;
    done.expect(1);
    assert!(done.err().contains("33"), "{done:?}");
    // The tool declares this exit code as success.
    w.file(&dir.join("may.cwl"), format!("{tool}successCodes: [33]\n"));
    python(w, &dir, "cwltool", &["--user-space-docker-cmd=udocker", "may.cwl"])?.ok();
    Ok(())
}

const WDL: &str = "version 1.0
workflow flow {
  input { Array[File] texts }
  scatter (text in texts) { call shout { input: text = text } }
  output { Array[File] all = shout.shouted  Array[Int] lengths = shout.length }
}
task shout {
  input { File text }
  command <<< tr a-z A-Z <'~{text}' >'shou ted'; wc -l <'shou ted' | tr -d ' ' >&1 >>>
  output { File shouted = 'shou ted'  Int length = read_int(stdout()) }
  runtime { docker: 'IMAGE' }
}
";

/// miniwdl always pulls by itself.
fn miniwdl(w: &World) -> Outcome {
    let Ok(registry) = DockerRegistry::start() else { testkit::skip!("no docker-registry here") };
    registry.target().image("sci/wdl", "1", &image(&w.layer)).expect("pushing");
    let dir = w.dir("wdl");
    let name = format!("{}/sci/wdl:1", registry.host());
    w.file(&dir.join("flow.wdl"), WDL.replace("IMAGE", &name));
    let mut words = vec!["run", "--no-color", "--cfg", "cfg", "--dir", ".", "flow.wdl"];
    w.file(&dir.join("cfg"), "[scheduler]\ncontainer_backend = udocker\n[udocker]\nexe = [\"udocker\", \"--allow-root\", \"--insecure\"]\n");
    let inputs: Vec<String> = (0..2).map(|n| format!("texts=in {n}.txt")).collect();
    for (n, input) in inputs.iter().enumerate() {
        w.file(&dir.join(format!("in {n}.txt")), "a line\n".repeat(n + 1));
        words.push(input);
    }
    let done = python(w, &dir, "miniwdl", &words)?;
    let value: serde_json::Value = serde_json::from_slice(&done.ok().stdout).expect("JSON");
    assert_eq!(value["outputs"]["flow.lengths"], serde_json::json!([1, 2]), "{done:?}");
    let file = value["outputs"]["flow.all"][1].as_str().expect("a file");
    assert_eq!(fs::read_to_string(file).expect("the output"), "A LINE\nA LINE\n");
    Ok(())
}

/// The launcher that Nextflow writes.
fn nextflow(w: &World) -> Outcome {
    let dir = w.dir("nextflow");
    let work = dir.display();
    let name = IMAGE;
    let script = format!(
        "((udocker.py images | grep -E -o \"^{name}\\s\") || udocker.py pull \"{name}\")>/dev/null
         export NXF_TASK_WORKDIR='{work}'
         udocker.py run --rm --cpuset-cpus=0 -e \"NXF_DEBUG=${{NXF_DEBUG:=0}}\" -e \"SPACED=a b\" -v /tmp:/tmp -v '{work}':'{work}' -w \"$NXF_TASK_WORKDIR\" --bindhome $(udocker.py create \"{name}\") /bin/bash -c 'echo \"$NXF_DEBUG $SPACED\"; pwd; echo done >.exitcode; exit 7'",
    );
    let done = w.shell(&[], &script);
    done.expect(7);
    assert_eq!(done.out(), format!("0 a b\n{work}\n"));
    assert_eq!(fs::read_to_string(dir.join(".exitcode")).expect("a file"), "done\n");
    Ok(())
}

/// faas-supervisor on a machine without network: loads, looks for the container's name, makes it,
/// runs a script as its entrypoint.
fn scar(w: &World) -> Outcome {
    let (input, output) = (w.dir("scar-in"), w.dir("scar-out"));
    w.file(&input.join("event"), "event\n");
    w.file(&input.join("script.sh"), "cat \"$INPUT/event\" >\"$OUTPUT/result\"; echo $KEY\n");
    let container = w.unique("udocker_container");
    let (i, o) = (input.display(), output.display());
    let script = format!(
        "set -e; udocker load -i '{}' >/dev/null; udocker images | grep -q '{IMAGE}'
         udocker ps | grep -q {container} || udocker create --name={container} {IMAGE} >/dev/null
         udocker ps | grep -q {container}
         udocker setup --execmode=F1 {container}
         udocker --quiet run -v {i} -v {o} -v /dev -v /proc -v /etc/hosts --nosysdirs --env KEY='v w' --env INPUT={i} --env OUTPUT={o} \"--entrypoint=/bin/sh {i}/script.sh\" {container}",
        w.archive.display()
    );
    assert_eq!(w.shell(&[], &script).ok().out(), "v w\n");
    assert_eq!(fs::read_to_string(output.join("result")).expect("the result"), "event\n");
    w.udocker(&["rm", &container]).ok();
    Ok(())
}

fn stimela(w: &World) -> Outcome {
    let dir = w.dir("stimela");
    let name = w.unique("stimela");
    let script = format!(
        "set -e; udocker create --name={name} {IMAGE} >/dev/null; udocker inspect {name} >/dev/null
         udocker run --volume='{}':/scratch --env=\"HOME=/scratch\" --workdir=/scratch {name} sh -c 'pwd; echo $HOME; touch made'
         udocker rm {name} >/dev/null",
        dir.display()
    );
    assert_eq!(w.shell(&[], &script).ok().out(), "/scratch\n/scratch\n");
    assert!(dir.join("made").exists());
    Ok(())
}
