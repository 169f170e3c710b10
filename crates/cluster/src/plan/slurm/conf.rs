//! Slurm's configuration file, `slurm.conf(5)` of Slurm 22.05.

use std::fmt::Write as _;

use crate::parts::CONTROL;
use crate::plan::{Site, processors};
use crate::slurm::{Action, CONTROL_PORT, MUNGE_SOCKET, PROGRAM, SPOOL, STATE};
use crate::spec::{Batch, Compute};

/// A node has so many seconds from when it is asked for until it registers, and half a second more
/// for each that may be asked for at once. Then its job is put into the queue again.
const RESUME_TIMEOUT: u32 = 60;
/// A node that was given back can be asked for again after so many seconds.
const SUSPEND_TIMEOUT: u32 = 5;
/// Credentials of jobs are good for so many seconds, and a job that was put into the queue again
/// waits so long.
const CREDENTIAL: u32 = 20;
/// A node that is silent for so many seconds is down, and its jobs are put into the queue again.
const SILENCE: u32 = 30;
/// Jobs that come are looked at once a second, as often as the controller's main loop goes round.
/// By default they wait up to three seconds for more to come.
const SCHEDULER: &str = "sched_interval=1,bf_interval=1,batch_sched_delay=0";

/// The configuration of a cluster's Slurm on these hosts, of which there is at least one.
pub(crate) fn conf(cluster: &str, batch: &Batch, sites: &[Site]) -> String {
    let user = sites.first().map_or("", |site| &site.user);
    let program = |action: Action| format!("{PROGRAM}{}", action.word());
    let seconds = |one: &Compute| one.idle.as_secs().max(1);
    let idle = batch.compute.first().map_or(60, seconds);
    let all: u32 = batch.compute.iter().map(|one| one.max).sum();
    let resume_timeout = RESUME_TIMEOUT + all / 2;
    let mut text = format!(
        "# Written by Coracle, and anew by 'cluster up' and 'cluster replace {CONTROL}'.\n\
         ClusterName={cluster}\n\
         SlurmctldHost={CONTROL}-1\n\
         SlurmctldPort={CONTROL_PORT}\n\
         SlurmUser={user}\n\
         SlurmdUser={user}\n\
         AuthType=auth/munge\n\
         AuthInfo=socket={MUNGE_SOCKET},cred_expire={CREDENTIAL}\n\
         CredType=cred/munge\n\
         StateSaveLocation={STATE}\n\
         SlurmdSpoolDir={SPOOL}\n\
         SlurmctldPidFile=/tmp/slurmctld.pid\n\
         SlurmdPidFile=/tmp/slurmd.pid\n\
         ProctrackType=proctrack/linuxproc\n\
         TaskPlugin=task/none\n\
         SwitchType=switch/none\n\
         JobAcctGatherType=jobacct_gather/none\n\
         SelectType=select/cons_tres\n\
         SelectTypeParameters=CR_CPU\n\
         SchedulerType=sched/backfill\n\
         SchedulerParameters={SCHEDULER}\n\
         JobRequeue=1\n\
         ReturnToService=2\n\
         SlurmdTimeout={SILENCE}\n\
         SlurmdParameters=config_overrides\n\
         SlurmctldParameters=cloud_dns,idle_on_node_suspend,power_save_interval=1\n\
         CommunicationParameters=NoAddrCache\n\
         PrivateData=cloud\n\
         ResumeProgram={}\n\
         SuspendProgram={}\n\
         ResumeFailProgram={}\n\
         PrologSlurmctld={}\n\
         ResumeTimeout={resume_timeout}\n\
         SuspendTimeout={SUSPEND_TIMEOUT}\n\
         SuspendTime={idle}\n\
         ResumeRate=0\n\
         SuspendRate=0\n",
        program(Action::Resume),
        program(Action::Suspend),
        program(Action::Failed),
        program(Action::Ready),
    );
    let stay: Vec<String> =
        batch.compute.iter().filter(|one| one.min > 0).map(|one| names(one, one.min)).collect();
    if !stay.is_empty() {
        let _ = writeln!(text, "SuspendExcNodes={}", stay.join(","));
    }
    let least = |of: fn(&Site) -> u64| sites.iter().map(of).min().unwrap_or(0);
    let memory = least(|site| site.memory >> 20);
    for one in &batch.compute {
        let all = names(one, one.max);
        let cpus = processors(one, sites);
        let memory = if memory > 0 { format!(" RealMemory={memory}") } else { String::new() };
        let _ = writeln!(text, "NodeName={all} CPUs={cpus}{memory} State=CLOUD");
    }
    for (number, one) in batch.compute.iter().enumerate() {
        let default = if number == 0 { "YES" } else { "NO" };
        let own = seconds(one);
        let own = if own == idle { String::new() } else { format!(" SuspendTime={own}") };
        let _ = writeln!(
            text,
            "PartitionName={} Nodes={} Default={default} MaxTime=INFINITE State=UP{own}",
            one.name,
            names(one, one.max)
        );
    }
    text
}

/// The first nodes of these, as Slurm writes several hosts.
fn names(of: &Compute, count: u32) -> String {
    if count == 1 { format!("{}-1", of.name) } else { format!("{}-[1-{count}]", of.name) }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_file_of_two_partitions() {
        let text = "name = \"farm\"\nbackend = { kind = \"ssh\", hosts = [\"a\", \"b\"] }\n[batch]\n\
                    kind = \"slurm\"\nfront = \"f\"\ncontrol = \"c\"\n\
                    compute = [{ image = \"a\", max = 16, cpus = 2 }, \
                    { name = \"large\", image = \"b\", min = 1, max = 2, idle = \"5m\" }]\n";
        let spec = crate::spec::parse(Path::new("farm.toml"), text).unwrap();
        let mut sites = crate::plan::unknown_sites(&spec, "/lab");
        for (site, (processors, memory)) in sites.iter_mut().zip([(8, 64 << 30), (4, 16 << 30)]) {
            (site.processors, site.memory) = (processors, memory);
            site.user = "1000".to_owned();
        }
        let batch = spec.batch.unwrap();
        insta::assert_snapshot!(conf(&spec.name, &batch, &sites));
    }
}
