//! Walks the nodes with data.

use serde_json::Value;

use super::Error;
use super::functions;
use super::parse::{Command, Node, Operand, Pipe};

/// A name beginning with this in an object is for templates only and is left out of `json`.
pub(super) const HIDDEN: char = '@';

struct Run<'a> {
    root: &'a Value,
    variables: Vec<(String, Value)>,
    out: String,
    /// Headings are rendered: functions pass their first argument through.
    headings: bool,
}

/// What a list of nodes asks of the loop around it.
#[derive(PartialEq)]
enum Flow {
    On,
    Break,
    Continue,
}

/// More output than any listing has: a loop gone wild.
const MAX_OUTPUT: usize = 256 << 20;

pub(super) fn run(nodes: &[Node], data: &Value, headings: bool) -> Result<String, Error> {
    let mut run = Run { root: data, variables: Vec::new(), out: String::new(), headings };
    run.list(nodes, data)?;
    Ok(run.out)
}

fn eval_error(text: impl Into<String>) -> Error {
    Error::Eval(text.into())
}

impl Run<'_> {
    fn list(&mut self, nodes: &[Node], dot: &Value) -> Result<Flow, Error> {
        let depth = self.variables.len();
        for node in nodes {
            let flow = self.node(node, dot)?;
            if flow != Flow::On {
                self.variables.truncate(depth);
                return Ok(flow);
            }
        }
        self.variables.truncate(depth);
        Ok(Flow::On)
    }

    fn node(&mut self, node: &Node, dot: &Value) -> Result<Flow, Error> {
        match node {
            Node::Text(text) => self.out.push_str(text),
            Node::Print(pipe) => {
                let value = self.pipe(pipe, dot)?;
                if pipe.variables.is_empty() {
                    functions::print_value(&mut self.out, &value);
                }
                if self.out.len() > MAX_OUTPUT {
                    return Err(eval_error("output is too large"));
                }
            }
            Node::If(branches, otherwise) => {
                let depth = self.variables.len();
                for (head, body) in branches {
                    if functions::truth(&self.pipe(head, dot)?) {
                        let flow = self.list(body, dot);
                        self.variables.truncate(depth);
                        return flow;
                    }
                }
                let flow = self.list(otherwise, dot);
                self.variables.truncate(depth);
                return flow;
            }
            Node::With(head, body, otherwise) => {
                let depth = self.variables.len();
                let value = self.pipe(head, dot)?;
                let flow = if functions::truth(&value) {
                    self.list(body, &value)
                } else {
                    self.list(otherwise, dot)
                };
                self.variables.truncate(depth);
                return flow;
            }
            Node::Range(head, body, otherwise) => return self.range(head, body, otherwise, dot),
            Node::Break => return Ok(Flow::Break),
            Node::Continue => return Ok(Flow::Continue),
        }
        Ok(Flow::On)
    }

    fn range(
        &mut self,
        head: &Pipe,
        body: &[Node],
        otherwise: &[Node],
        dot: &Value,
    ) -> Result<Flow, Error> {
        let pairs: Vec<(Value, Value)> = match self.commands(head, dot)? {
            Value::Array(items) => {
                items.into_iter().enumerate().map(|(i, v)| (i.into(), v)).collect()
            }
            Value::Object(map) => {
                let mut pairs: Vec<_> =
                    map.into_iter().filter(|(k, _)| !k.starts_with(HIDDEN)).collect();
                pairs.sort_by(|a, b| a.0.cmp(&b.0));
                pairs.into_iter().map(|(k, v)| (k.into(), v)).collect()
            }
            Value::Null => Vec::new(),
            _ if self.headings => Vec::new(),
            other => return Err(eval_error(format!("range can't iterate over {other}"))),
        };
        if pairs.is_empty() {
            return self.list(otherwise, dot);
        }
        for (key, value) in pairs {
            let depth = self.variables.len();
            match head.variables.as_slice() {
                [item] => self.variables.push((item.clone(), value.clone())),
                [index, item] => {
                    self.variables.push((index.clone(), key));
                    self.variables.push((item.clone(), value.clone()));
                }
                _ => {}
            }
            let flow = self.list(body, &value)?;
            self.variables.truncate(depth);
            if flow == Flow::Break {
                break;
            }
        }
        Ok(Flow::On)
    }

    /// Evaluates and sets the variables of the pipe.
    fn pipe(&mut self, pipe: &Pipe, dot: &Value) -> Result<Value, Error> {
        let value = self.commands(pipe, dot)?;
        if let [name] = pipe.variables.as_slice() {
            let known = self.variables.iter_mut().rev().find(|(known, _)| known == name);
            match known {
                Some((_, slot)) if !pipe.declares => *slot = value.clone(),
                None if !pipe.declares => {
                    return Err(eval_error(format!("undefined variable \"${name}\"")));
                }
                _ => self.variables.push((name.clone(), value.clone())),
            }
        }
        Ok(value)
    }

    fn commands(&mut self, pipe: &Pipe, dot: &Value) -> Result<Value, Error> {
        let mut piped = None;
        for command in &pipe.commands {
            piped = Some(self.command(command, dot, piped)?);
        }
        Ok(piped.unwrap_or(Value::Null))
    }

    fn command(
        &mut self,
        command: &Command,
        dot: &Value,
        piped: Option<Value>,
    ) -> Result<Value, Error> {
        let Some((first, rest)) = command.words.split_first() else { return Ok(Value::Null) };
        match first {
            Operand::Function(name) => {
                let mut arguments = Vec::with_capacity(rest.len() + 1);
                for word in rest {
                    arguments.push(self.operand(word, dot)?);
                }
                arguments.extend(piped);
                if self.headings && functions::exists(name) {
                    return Ok(functions::heading(name, arguments));
                }
                functions::call(name, &arguments)
            }
            // `.Label "key"` is a method of Docker's rows.
            Operand::Field(names) if names.as_slice() == ["Label"] && !rest.is_empty() => {
                if self.headings {
                    return self.operand(&rest[0], dot);
                }
                let key = self.operand(&rest[0], dot)?;
                let labels = dot.get("@labels").unwrap_or(&Value::Null);
                Ok(labels
                    .get(key.as_str().unwrap_or_default())
                    .cloned()
                    .unwrap_or_else(|| "".into()))
            }
            _ if !rest.is_empty() || piped.is_some() => {
                Err(eval_error("can't give argument to non-function"))
            }
            operand => self.operand(operand, dot),
        }
    }

    fn operand(&mut self, operand: &Operand, dot: &Value) -> Result<Value, Error> {
        match operand {
            Operand::Literal(value) => Ok(value.clone()),
            Operand::Field(names) => self.fields(dot, names),
            Operand::Variable(name, names) if name.is_empty() => self.fields(self.root, names),
            Operand::Variable(name, names) => {
                let found = self.variables.iter().rev().find(|(known, _)| known == name);
                let Some((_, value)) = found else {
                    return Err(eval_error(format!("undefined variable \"${name}\"")));
                };
                let value = value.clone();
                self.fields(&value, names)
            }
            Operand::Nested(pipe, names) => {
                let value = self.pipe(pipe, dot)?;
                self.fields(&value, names)
            }
            Operand::Function(_) => {
                let words: &[Operand] = std::slice::from_ref(operand);
                if let [Operand::Function(name)] = words {
                    functions::call(name, &[])
                } else {
                    Ok(Value::Null)
                }
            }
        }
    }

    /// `.a.b` of a value. Only a name that the *top* object does not have is an error: below it,
    /// labels and parts that are absent come out as `<no value>`.
    fn fields(&self, value: &Value, names: &[String]) -> Result<Value, Error> {
        let mut at = value;
        for name in names {
            at = match at.get(name).or_else(|| at.get(in_json(name)?)) {
                Some(next) => next,
                None if std::ptr::eq(at, self.root) => {
                    return Err(match at.as_object() {
                        Some(map) => {
                            eval_error(format!("no field .{name}; there are {}", known(map)))
                        }
                        None => eval_error(format!("can't evaluate field {name}")),
                    });
                }
                None if at.is_object() || at.is_null() => &Value::Null,
                None => return Err(eval_error(format!("can't evaluate field {name} in {at}"))),
            };
        }
        Ok(at.clone())
    }
}

/// Fields that Docker's templates name otherwise than its JSON does: a template sees Go's names.
const GO_NAMES: [(&str, &str); 9] = [
    ("ID", "Id"),
    ("APIVersion", "ApiVersion"),
    ("NanoCPUs", "NanoCpus"),
    ("CPUShares", "CpuShares"),
    ("CPUPeriod", "CpuPeriod"),
    ("CPUQuota", "CpuQuota"),
    ("DNS", "Dns"),
    ("DNSOptions", "DnsOptions"),
    ("DNSSearch", "DnsSearch"),
];

fn in_json(name: &str) -> Option<&'static str> {
    GO_NAMES.iter().find(|(go, _)| *go == name).map(|(_, json)| *json)
}

fn known(map: &serde_json::Map<String, Value>) -> String {
    let names: Vec<String> =
        map.keys().filter(|key| !key.starts_with(HIDDEN)).map(|key| format!(".{key}")).collect();
    names.join(" ")
}
