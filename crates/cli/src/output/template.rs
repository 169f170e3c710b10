//! Docker's `--format` templates: the part of Go's `text/template` that scripts use, evaluated over
//! JSON.
//!
//! `{{.Field.Nested}}`, `{{json .}}`, pipes, `if`/`else if`/`with`/`range` (with variables),
//! `index`, `len`, comparisons, `printf`, and Docker's own `join`, `split`, `upper`, `lower`,
//! `title`, `pad`, `truncate`, `println`. Trim markers and comments work. `define`, `template`,
//! `block` and method calls do not; they are refused by name.
//!
//! Why not the `gtmpl` crate: its `range` visits maps in random order and runs the `else` part
//! after every loop (0.7.1), and its values know no order of fields, which `{{json .}}` must keep.

mod eval;
mod functions;
mod lex;
mod parse;

use serde_json::Value;

use crate::report::Report;

/// What is wrong with a template.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum Error {
    /// The text is not a template.
    #[error("template: {0}")]
    Syntax(String),
    /// It asks for something that the data do not have.
    #[error("template: {0}")]
    Eval(String),
}

impl From<Error> for Report {
    fn from(error: Error) -> Self {
        Self::of(&error, None).hint("see 'coracle help formats' for what templates can do")
    }
}

/// A parsed template.
#[derive(Debug)]
pub(crate) struct Template {
    nodes: Vec<parse::Node>,
}

impl Template {
    /// Parses. `\t` and `\n` written as two characters mean a tab and a line end, as in Docker.
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let text = text.replace("\\t", "\t").replace("\\n", "\n");
        Ok(Self { nodes: parse::parse(&text)? })
    }

    /// Renders for one value.
    pub(crate) fn render(&self, data: &Value) -> Result<String, Error> {
        eval::run(&self.nodes, data, false)
    }

    /// Renders the line of headings: functions that change text leave it as it is.
    pub(crate) fn headings(&self, names: &Value) -> Result<String, Error> {
        eval::run(&self.nodes, names, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn render(template: &str, data: &Value) -> String {
        match Template::parse(template).and_then(|parsed| parsed.render(data)) {
            Ok(text) => text,
            Err(error) => format!("!{error}"),
        }
    }

    #[test]
    fn fields_pipes_and_functions() {
        let data = json!({
            "ID": "abc", "Ports": [80, 443], "State": {"Status": "running", "Pid": 7, "Dead": false},
            "Labels": {"b": "2", "a": "1"}, "Names": ["x", "y"], "Empty": [], "Null": null
        });
        for (template, expected) in [
            ("{{.ID}}", "abc"),
            ("{{ .ID }}-{{.State.Status}}", "abc-running"),
            ("{{json .Ports}}", "[80,443]"),
            ("{{.Ports | json}}", "[80,443]"),
            ("{{.Ports}}", "[80 443]"),
            ("{{.Labels}}", "map[a:1 b:2]"),
            ("{{.State.Dead}} {{.State.Pid}}", "false 7"),
            ("{{upper .ID}}{{lower \"ABC\"}}{{title .ID}}", "ABCabcAbc"),
            ("{{join .Names \",\"}}", "x,y"),
            ("{{len .Names}}", "2"),
            ("{{index .Names 1}}", "y"),
            ("{{index .Labels \"a\"}}", "1"),
            ("{{index .Labels \"none\"}}", ""),
            ("{{(index .Names 0) | upper}}", "X"),
            ("{{range .Names}}<{{.}}>{{end}}", "<x><y>"),
            ("{{range $i, $n := .Names}}{{$i}}={{$n}};{{end}}", "0=x;1=y;"),
            ("{{range $k, $v := .Labels}}{{$k}}{{$v}} {{end}}", "a1 b2 "),
            ("{{range .Empty}}x{{else}}none{{end}}", "none"),
            ("{{if .State.Dead}}dead{{else if eq .ID \"abc\"}}mine{{else}}?{{end}}", "mine"),
            ("{{if and .ID (not .State.Dead)}}ok{{end}}", "ok"),
            ("{{with .State}}{{.Status}}{{$.ID}}{{end}}", "runningabc"),
            (
                "{{printf \"%s-%05d|%q|%v|%-4s|%x\" .ID 42 .ID .Names \"z\" 255}}",
                "abc-00042|\"abc\"|[x y]|z   |ff",
            ),
            ("{{println .ID}}", "abc\n"),
            ("a\\tb\\n", "a\tb\n"),
            ("{{/* nothing */}}x {{- \"y\" -}}   z", "xyz"),
            ("{{$x := .ID}}{{$x}}", "abc"),
            ("{{split \"a,b\" \",\"}}", "[a b]"),
            ("{{truncate .ID 2}}{{pad .ID 1 2}}", "ab abc  "),
            ("{{.Null}}", "<no value>"),
            ("{{eq 1 1}} {{lt 1 2}} {{ne .ID \"x\"}} {{or .Null .ID}}", "true true true abc"),
            ("{{`raw`}}", "raw"),
            ("{{.State.Nope}}", "<no value>"),
            ("{{slice .ID 0 2}}", "ab"),
        ] {
            assert_eq!(render(template, &data), expected, "{template}");
        }
    }

    #[test]
    fn names_of_go_are_those_of_json() {
        let data =
            json!({"Id": "abc", "Client": {"ApiVersion": "1.43"}, "Both": {"ID": "x", "Id": "y"}});
        assert_eq!(render("{{.ID}} {{.Id}}", &data), "abc abc");
        assert_eq!(render("{{.Client.APIVersion}}", &data), "1.43");
        assert_eq!(render("{{.Both.ID}}{{.Both.Id}}", &data), "xy");
    }

    #[test]
    fn mistakes_are_named() {
        let data = json!({"ID": "abc"});
        for (template, part) in [
            ("{{.Nope}}", "no field .Nope"),
            ("{{nope .ID}}", "function \"nope\" not defined"),
            ("{{.ID", "unclosed action"),
            ("{{if .ID}}", "unexpected EOF"),
            ("{{end}}", "unexpected {{end}}"),
            ("{{range .ID}}{{end}}", "range can't iterate"),
            ("{{define \"x\"}}{{end}}", "define is not supported"),
            ("{{\"abc}}", "unterminated"),
            ("{{$x}}", "undefined variable"),
        ] {
            let text = render(template, &data);
            assert!(text.starts_with('!') && text.contains(part), "{template}: {text}");
        }
    }

    #[test]
    fn headings_ignore_functions() {
        let parsed = Template::parse("{{upper .ID}}\t{{json .Names}}").unwrap();
        let names = json!({"ID": "Container Id", "Names": "NAMES"});
        assert_eq!(parsed.headings(&names).unwrap(), "Container Id\tNAMES");
    }
}
