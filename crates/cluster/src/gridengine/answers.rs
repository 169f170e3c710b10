//! What the controller says of its jobs and nodes.

use std::collections::{BTreeMap, BTreeSet};

use roxmltree::{Document, Node};

use super::ONE_NODE;
use crate::error::{Error, Result};

/// A job that waits for slots, as `qstat -r -xml` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Job {
    /// Its number.
    pub(crate) number: u32,
    /// How many of it wait, each for as many slots: more than one is an array job.
    pub(crate) tasks: u32,
    /// Slots of each; the fewest, if it would take several numbers.
    pub(crate) slots: u32,
    /// All of them are to be on one node.
    pub(crate) is_on_one: bool,
    /// Patterns of queues, `QUEUE` or `QUEUE@HOST`, one of which it asks for. Any, if there are
    /// none.
    pub(crate) queues: Vec<String>,
    /// Patterns of hosts, in the same way.
    pub(crate) hosts: Vec<String>,
}

/// A node, as `qhost -q -j -xml` shows it.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct State {
    /// Slots that jobs have.
    pub(crate) used: u32,
    /// Letters, as qstat(1) has them.
    letters: String,
    /// The jobs there.
    pub(crate) jobs: BTreeSet<u32>,
}

impl State {
    /// It does not answer.
    pub(crate) fn is_silent(&self) -> bool {
        self.letters.contains('u')
    }

    /// It gets no new job, because somebody wants that.
    pub(crate) fn is_disabled(&self) -> bool {
        self.letters.contains('d')
    }

    /// It gets no new job, because one could not be started there.
    pub(crate) fn is_wrong(&self) -> bool {
        self.letters.contains('E')
    }
}

/// All that it says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Answers {
    /// Jobs that wait, the first ones first. Those that are held, or are in error, are left out.
    pub(crate) jobs: Vec<Job>,
    /// The nodes, by name.
    pub(crate) nodes: BTreeMap<String, State>,
}

/// Reads what [`super::question`] prints.
///
/// # Errors
/// If it is something else.
pub(crate) fn read(said: &str) -> Result<Answers> {
    // Two documents follow each other.
    let begins: Vec<usize> = said.match_indices("<?xml").map(|(at, _)| at).collect();
    let [first, second] = begins[..] else { return Err(unknown("there are not two answers")) };
    let document = |text| Document::parse(text).map_err(|error| unknown(&error.to_string()));
    let (jobs, hosts) = (document(&said[first..second])?, document(&said[second..])?);
    let jobs = jobs.descendants().filter(|node| node.has_tag_name("job_list"));
    let hosts = hosts.root_element();
    let nodes = hosts.children().filter(|node| node.has_tag_name("host"));
    let nodes = nodes.filter_map(|node| Some((node.attribute("name")?.to_owned(), state(node))));
    Ok(Answers {
        jobs: jobs.filter_map(job).collect(),
        nodes: nodes.filter(|(name, _)| name != "global").collect(),
    })
}

fn unknown(why: &str) -> Error {
    Error::new(format!("Grid Engine's answer is not understood: {why}"))
}

/// A job, if nothing but slots keeps it from running.
fn job(node: Node<'_, '_>) -> Option<Job> {
    let all = |tag: &'static str| node.children().filter(move |child| child.has_tag_name(tag));
    let text = |tag: &'static str| all(tag).next().and_then(|child| child.text());
    if text("state")?.contains(['h', 'E']) {
        return None;
    }
    let environment = all("requested_pe").next().and_then(|child| child.attribute("name"));
    let asked = |name: &'static str| {
        let requests = all("hard_request");
        requests.filter(move |child| child.attribute("name") == Some(name))
    };
    let texts = |children: &mut dyn Iterator<Item = Node<'_, '_>>| -> Vec<String> {
        children.filter_map(|child| child.text().map(str::to_owned)).collect()
    };
    Some(Job {
        number: text("JB_job_number")?.parse().ok()?,
        tasks: text("tasks").map_or(1, tasks),
        slots: text("slots")?.parse().ok()?,
        is_on_one: environment == Some(ONE_NODE),
        queues: texts(&mut all("hard_req_queue").chain(asked("qname"))),
        hosts: texts(&mut asked("hostname")),
    })
}

/// How many tasks these are: `1-9:2,12`.
fn tasks(text: &str) -> u32 {
    let count = |range: &str| {
        let (ends, step) = range.split_once(':').unwrap_or((range, "1"));
        let (first, last) = ends.split_once('-').unwrap_or((ends, ends));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        let step: u32 = step.parse().ok()?;
        last.checked_sub(first)?.checked_div(step)?.checked_add(1)
    };
    // What is not understood is one at least.
    text.split(',').map(|range| count(range).unwrap_or(1)).fold(0, u32::saturating_add)
}

fn state(host: Node<'_, '_>) -> State {
    let mut found = State::default();
    for value in host.descendants().filter(|node| node.has_tag_name("queuevalue")) {
        let text = value.text().unwrap_or_default();
        match value.attribute("name") {
            Some("slots_used") => found.used += text.parse::<u32>().unwrap_or(0),
            Some("state_string") => found.letters.push_str(text),
            _ => {}
        }
    }
    let jobs = host.children().filter(|node| node.has_tag_name("job"));
    found.jobs = jobs.filter_map(|job| job.attribute("name")?.parse().ok()).collect();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_and_nodes_are_read() {
        let said = "<?xml version='1.0'?>\n<job_info  xmlns:xsd=\"http://arc/qstat.xsd\">\
            <queue_info></queue_info><job_info>\
            <job_list state=\"pending\"><JB_job_number>7</JB_job_number><JB_name>a &lt; b</JB_name>\
            <state>qw</state><slots>2</slots><requested_pe name=\"smp\">2</requested_pe>\
            <hard_req_queue>compute@farm-compute-3</hard_req_queue></job_list>\
            <job_list state=\"pending\"><JB_job_number>5</JB_job_number><state>Rq</state>\
            <slots>1</slots><tasks>5-9:2,12</tasks><hard_req_queue>comp*</hard_req_queue>\
            <hard_req_queue>large</hard_req_queue></job_list>\
            <job_list state=\"pending\"><JB_job_number>8</JB_job_number><state>qw</state>\
            <slots>4</slots><requested_pe name=\"mpi\">4-9</requested_pe>\
            <hard_request name=\"qname\" resource_contribution=\"0.0\">compute</hard_request>\
            </job_list>\
            <job_list state=\"pending\"><JB_job_number>6</JB_job_number><state>hqw</state>\
            <slots>1</slots></job_list>\
            <job_list state=\"pending\"><JB_job_number>9</JB_job_number><state>Eqw</state>\
            <slots>1</slots></job_list></job_info></job_info>\n\
            <?xml version='1.0'?>\n<qhost xmlns:xsd=\"http://arc/qhost.xsd\">\
            <host name='global'><hostvalue name='num_proc'>-</hostvalue></host>\
            <host name='farm-compute-1'><hostvalue name='num_proc'>2</hostvalue>\
            <queue name='compute'><queuevalue qname='compute' name='slots_used'>2</queuevalue>\
            <queuevalue qname='compute' name='slots'>2</queuevalue>\
            <queuevalue qname='compute' name='state_string'></queuevalue></queue>\
            <job name='5'><jobvalue jobid='5' name='taskid'>3</jobvalue></job>\
            <job name='5'><jobvalue jobid='5' name='taskid'>4</jobvalue></job></host>\
            <host name='farm-compute-2'><queue name='compute'>\
            <queuevalue qname='compute' name='slots_used'>0</queuevalue>\
            <queuevalue qname='compute' name='state_string'>du</queuevalue></queue></host></qhost>";
        let found = read(said).unwrap();
        let job = |number, tasks, slots, is_on_one, queues: &[&str]| Job {
            number,
            tasks,
            slots,
            is_on_one,
            queues: queues.iter().map(|&queue| queue.to_owned()).collect(),
            hosts: Vec::new(),
        };
        let jobs = [
            job(7, 1, 2, true, &["compute@farm-compute-3"]),
            job(5, 4, 1, false, &["comp*", "large"]),
            job(8, 1, 4, false, &["compute"]),
        ];
        assert_eq!(found.jobs, jobs);
        let (one, two) = (&found.nodes["farm-compute-1"], &found.nodes["farm-compute-2"]);
        assert_eq!((one.used, one.jobs.len(), found.nodes.len()), (2, 1, 2));
        assert!(!one.is_silent() && two.is_silent() && two.is_disabled() && !two.is_wrong());
        for wrong in ["", "<?xml version='1.0'?><a/>", "error: commlib error"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn tasks_are_counted() {
        let all = [("7", 1), ("1-4:1", 4), ("1-9:2,12", 6), ("?", 1), ("1-4:0", 1), ("4-1:1", 1)];
        for (text, count) in all {
            assert_eq!(tasks(text), count, "{text}");
        }
        assert_eq!(tasks("1-4294967295:1,0-4294967295:1"), u32::MAX);
    }
}
