//! All commands: name, meaning, flags, examples, and the function that does it.

use clap::{ArgMatches, Args, FromArgMatches};

use super::completion;
use crate::args::{archives, cluster, containers, images, networks, run, system};
use crate::commands;
use crate::context::Context;
use crate::report::{Exit, Report};

/// Where a command stands in the overview.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Section {
    Run,
    Containers,
    Images,
    Registries,
    Archives,
    Networks,
    Space,
    Coracle,
    /// Not listed in the overview.
    Hidden,
    /// Listed nowhere: only this program calls it.
    Internal,
}

impl Section {
    pub(crate) const SHOWN: [(Self, &'static str); 8] = [
        (Self::Run, "Running"),
        (Self::Containers, "Containers"),
        (Self::Images, "Images"),
        (Self::Registries, "Registries"),
        (Self::Archives, "Archives and trees"),
        (Self::Networks, "Networks"),
        (Self::Space, "Space and volumes"),
        (Self::Coracle, "Coracle"),
    ];
}

/// One command.
pub(crate) struct Command {
    /// Name, or group and name.
    pub path: &'static str,
    /// Other ways to write it.
    pub aliases: &'static [&'static str],
    /// What it does, in one line.
    pub about: &'static str,
    /// Examples, one per line.
    pub examples: &'static str,
    /// Where it is listed.
    pub section: Section,
    /// Whether options may follow operands.
    pub interspersed: bool,
    /// Adds its flags.
    pub flags: fn(clap::Command) -> clap::Command,
    /// Does it.
    pub run: fn(&Context, &ArgMatches) -> Result<Exit, Report>,
}

impl Command {
    /// Whether its exit status may be that of a program inside: as in Docker, its own failures are
    /// 125 then.
    pub(crate) fn runs_program(&self) -> bool {
        matches!(
            self.path,
            "run" | "create" | "exec" | "cluster run" | "cluster exec" | "cluster up"
        )
    }
}

/// Groups and what they hold.
pub(crate) const GROUPS: &[(&str, &str)] = &[
    ("cluster", "Many containers, by one file"),
    ("container", "Containers, under Docker's longer names"),
    ("image", "Images, under Docker's longer names"),
    ("migrate", "What other programs have made"),
    ("manifest", "Manifests in the store and in registries"),
    ("network", "Networks with names"),
    ("system", "Space and facts"),
    ("volume", "Named volumes"),
];

macro_rules! command {
    ($path:literal $([$($alias:literal),*])?, $section:ident, $args:ty, $run:path, $about:literal $(, examples: $examples:expr)? $(, ends: $ends:literal)?) => {
        Command {
            path: $path,
            aliases: &[$($($alias),*)?],
            about: $about,
            examples: concat!("" $(, $examples)?),
            section: Section::$section,
            interspersed: true $(&& !$ends)?,
            flags: <$args as Args>::augment_args,
            run: |context, matches| {
                let args = <$args as FromArgMatches>::from_arg_matches(matches)
                    .map_err(|error| Report::usage(error.to_string()))?;
                $run(context, &args)
            },
        }
    };
}

/// Every command.
pub(crate) const COMMANDS: &[Command] = &[
    command!("run" ["container run"], Run, run::RunArgs, commands::run::run,
        "Run a command in a new container, or in the existing one of that name",
        examples: "coracle run --rm debian:stable cat /etc/os-release
coracle run -it --name work -v $HOME/data:/data:ro -w /data debian bash
coracle run -d --name web -p 8080:80 nginx
coracle run work ls          # the container made above, with what was changed in it
coracle run --rm hello       # needs no network", ends: true),
    command!("exec" ["container exec"], Run, containers::ExecArgs, commands::exec::run,
        "Run a further command in a running container",
        examples: "coracle exec -it web sh
coracle exec -e DEBUG=1 -w /srv web ./check", ends: true),
    command!("create" ["container create"], Run, run::CreateArgs, commands::create::run,
        "Make a container and print its id",
        examples: "coracle create --name tools debian
coracle run tools apt-get update", ends: true),
    command!(
        "start"["container start"],
        Run,
        containers::StartArgs,
        commands::start::run,
        "Start containers that have stopped"
    ),
    command!(
        "stop"["container stop"],
        Run,
        containers::StopArgs,
        commands::stop::run,
        "Stop running containers"
    ),
    command!(
        "restart"["container restart"],
        Run,
        containers::RestartArgs,
        commands::stop::restart,
        "Stop containers and start them again"
    ),
    command!(
        "kill"["container kill"],
        Run,
        containers::KillArgs,
        commands::kill::run,
        "Send a signal to running containers"
    ),
    command!(
        "pause"["container pause"],
        Run,
        containers::PauseArgs,
        commands::pause::run,
        "Stop all processes of containers where they are"
    ),
    command!(
        "unpause"["container unpause"],
        Run,
        containers::PauseArgs,
        commands::pause::unpause,
        "Let paused containers go on"
    ),
    command!(
        "wait"["container wait"],
        Run,
        containers::WaitArgs,
        commands::wait::run,
        "Wait until containers have stopped and print their exit codes"
    ),
    command!(
        "attach"["container attach"],
        Run,
        containers::AttachArgs,
        commands::attach::run,
        "Join the terminal or the output of a running container"
    ),
    command!("logs" ["container logs"], Run, containers::LogsArgs, commands::logs::run,
        "Print what a container has written",
        examples: "coracle logs -f --tail 20 web
coracle logs --since 10m -t web"),
    command!("ps" ["container ls", "container list", "container ps"], Containers, containers::PsArgs, commands::ps::run,
        "List containers",
        examples: "coracle ps -a
coracle ps -aq --filter status=exited
coracle ps --format 'table {{.Names}}\\t{{.Status}}'"),
    command!("rm" ["container rm", "container remove"], Containers, containers::RmArgs, commands::rm::run,
        "Remove containers"),
    command!("inspect", Containers, images::InspectArgs, commands::inspect::run,
        "Show all that is known of containers, images, networks or volumes",
        examples: "coracle inspect -f '{{.State.Status}}' web
coracle inspect -f '{{json .Config.Env}}' debian"),
    command!("top" ["container top"], Containers, containers::TopArgs, commands::top::run,
        "List the processes of a running container", ends: true),
    command!("stats" ["container stats"], Containers, containers::StatsArgs, commands::stats::run,
        "Show what running containers use, again each second",
        examples: "coracle stats web
coracle stats --no-stream --format '{{.Name}} {{.CPUPerc}} {{.MemUsage}}'"),
    command!("events" ["system events"], Containers, containers::EventsArgs, commands::events::run,
        "Show what happens to containers, images, networks and volumes",
        examples: "coracle events --filter event=die --format '{{.Actor.Attributes.name}}'
coracle events --since 1h --until 0s"),
    command!("cp" ["container cp"], Containers, archives::CpArgs, commands::cp::run,
        "Copy files between a container and the host",
        examples: "coracle cp web:/etc/nginx/nginx.conf .
coracle cp data/ work:/data
tar c src | coracle cp - work:/usr/local"),
    command!(
        "diff"["container diff"],
        Containers,
        containers::DiffArgs,
        commands::diff::run,
        "List what was changed in a container's files"
    ),
    command!(
        "port"["container port"],
        Containers,
        containers::PortArgs,
        commands::port::run,
        "List the published ports of a container"
    ),
    command!(
        "update"["container update"],
        Containers,
        containers::UpdateArgs,
        commands::update::run,
        "Change the limits and the restart policy of containers"
    ),
    command!(
        "rename"["container rename"],
        Containers,
        containers::RenameArgs,
        commands::names::rename,
        "Give a container another name"
    ),
    command!(
        "name",
        Containers,
        containers::NameArgs,
        commands::names::add,
        "Give a container a further name (udocker)"
    ),
    command!(
        "rmname",
        Containers,
        containers::RmnameArgs,
        commands::names::remove,
        "Take a name away (udocker)"
    ),
    command!(
        "clone",
        Containers,
        containers::CloneArgs,
        commands::clone::run,
        "Copy a container with all that was changed in it (udocker)"
    ),
    command!(
        "protect",
        Containers,
        containers::ProtectArgs,
        commands::protect::protect,
        "Keep a container or an image from being removed (udocker)"
    ),
    command!(
        "unprotect",
        Containers,
        containers::ProtectArgs,
        commands::protect::unprotect,
        "Let it be removed again (udocker)"
    ),
    command!("setup", Containers, containers::SetupArgs, commands::setup::run,
        "Show or keep the execution mode of a container (udocker)",
        examples: "coracle setup --execmode=N1 work"),
    command!(
        "container inspect",
        Hidden,
        images::InspectArgs,
        commands::inspect::container,
        "Show all that is known of containers"
    ),
    command!(
        "container prune",
        Hidden,
        containers::ContainerPruneArgs,
        commands::prune::containers,
        "Remove all containers that do not run"
    ),
    command!("pull" ["image pull"], Images, images::PullArgs, commands::pull::run,
        "Fetch images from a registry",
        examples: "coracle pull debian:stable
coracle pull --platform linux/arm64 alpine
coracle pull 127.0.0.1:5000/sci/tools:1 --tls-verify=false"),
    command!("images" ["image ls", "image list"], Images, images::ImagesArgs, commands::images::run,
        "List images",
        examples: "coracle images --filter reference='*/sci/*'
coracle images --format '{{.Repository}}:{{.Tag}} {{.Size}}'"),
    command!(
        "tag"["image tag"],
        Images,
        images::TagArgs,
        commands::tag::run,
        "Give an image a further name"
    ),
    command!("rmi" ["image rm", "image remove"], Images, images::RmiArgs, commands::rmi::run,
        "Remove images"),
    command!(
        "history"["image history"],
        Images,
        images::HistoryArgs,
        commands::history::run,
        "Show how an image was made"
    ),
    command!(
        "verify",
        Images,
        images::VerifyArgs,
        commands::verify::run,
        "Check every stored byte against its digest"
    ),
    command!(
        "image inspect",
        Hidden,
        images::ImageInspectArgs,
        commands::inspect::image,
        "Show all that is known of images",
        examples: "coracle image inspect --index --format '{{.Names}} {{.BytesPerName}}' debian"
    ),
    command!(
        "image prune",
        Hidden,
        images::ImagePruneArgs,
        commands::prune::images,
        "Remove images that nothing needs"
    ),
    command!(
        "manifest inspect",
        Images,
        images::ManifestInspectArgs,
        commands::manifest::run,
        "Print the manifest of an image, from the store or its registry"
    ),
    command!(
        "search",
        Registries,
        images::SearchArgs,
        commands::search::run,
        "Look for images in a registry"
    ),
    command!("login", Registries, images::LoginArgs, commands::login::run,
        "Keep the credentials for a registry",
        examples: "coracle login registry.example.org
cat token | coracle login -u me --password-stdin ghcr.io"),
    command!(
        "logout",
        Registries,
        images::LogoutArgs,
        commands::login::logout,
        "Forget the credentials for a registry"
    ),
    command!("save" ["image save"], Archives, archives::SaveArgs, commands::save::run,
        "Write images to an archive",
        examples: "coracle save -o tools.tar sci/tools:1
coracle save debian | ssh node coracle load"),
    command!(
        "load"["image load"],
        Archives,
        archives::LoadArgs,
        commands::load::run,
        "Read images from an archive"
    ),
    command!("import" ["image import"], Archives, archives::ImportArgs, commands::import::run,
        "Make an image of a root tree",
        examples: "coracle import -c 'CMD [\"/bin/bash\"]' rootfs.tar my/tree:1
curl -L https://example.org/root.tar.zst | coracle import - my/tree"),
    command!(
        "export"["container export"],
        Archives,
        archives::ExportArgs,
        commands::export::run,
        "Write the tree of a container as tar"
    ),
    command!(
        "network create",
        Networks,
        networks::NetworkCreateArgs,
        commands::network::create,
        "Make a network, in which containers reach each other by name",
        examples: "coracle network create lab
coracle network create --subnet 10.9.0.0/16 --ip-range 10.9.4.0/24 lab
coracle create --network lab --network-alias db postgres
coracle network create --scope cluster --address 10.0.0.1 far"
    ),
    command!(
        "network invite",
        Networks,
        networks::NetworkInviteArgs,
        commands::network::invite,
        "Print this host's entry for the list of a network's hosts",
        examples: "coracle network invite far >> hosts.toml"
    ),
    command!(
        "network join",
        Networks,
        networks::NetworkJoinArgs,
        commands::network::join,
        "Join the list of hosts of a network, on each of them",
        examples: "coracle network join far --member hosts.toml"
    ),
    command!(
        "network ls"["network list"],
        Networks,
        networks::NetworkLsArgs,
        commands::network::list,
        "List networks"
    ),
    command!(
        "network inspect",
        Networks,
        networks::NetworkInspectArgs,
        commands::network::inspect,
        "Show all that is known of networks"
    ),
    command!(
        "network connect",
        Networks,
        networks::NetworkConnectArgs,
        commands::network::connect,
        "Put a container that does not run into a network"
    ),
    command!(
        "network disconnect",
        Networks,
        networks::NetworkDisconnectArgs,
        commands::network::disconnect,
        "Take a container that does not run out of a network"
    ),
    command!(
        "network rm"["network remove"],
        Networks,
        networks::NetworkRmArgs,
        commands::network::remove,
        "Remove networks"
    ),
    command!(
        "network prune",
        Hidden,
        networks::NetworkPruneArgs,
        commands::prune::networks,
        "Remove networks in which no container is"
    ),
    command!(
        "cluster up",
        Networks,
        cluster::ClusterUpArgs,
        commands::cluster::up,
        "Start what a cluster file says: services, or a run to its end",
        examples: "coracle cluster up -f gateway.toml        # until ctrl-C\n\
                   coracle cluster up -d -f gateway.toml     # until 'cluster down'"
    ),
    command!(
        "cluster down",
        Networks,
        cluster::ClusterDownArgs,
        commands::cluster::down,
        "End a cluster: its containers and its network"
    ),
    command!(
        "cluster status",
        Networks,
        cluster::ClusterStatusArgs,
        commands::cluster::status,
        "Show the containers of a cluster"
    ),
    command!(
        "cluster run",
        Networks,
        cluster::ClusterRunArgs,
        commands::cluster::members::run,
        "Run a command in a node of a cluster that is up",
        examples: "coracle cluster run -f job.toml                    # [run] of the file\n\
                   coracle cluster run -f job.toml --on node2 -- df -h /scratch",
        ends: true
    ),
    command!(
        "cluster exec",
        Networks,
        cluster::ClusterExecArgs,
        commands::cluster::members::exec,
        "Run a further command in a container of a cluster",
        examples: "coracle cluster exec -it gateway db psql\n\
                   coracle cluster exec -f gateway.toml portal-2 ps",
        ends: true
    ),
    command!(
        "cluster logs",
        Networks,
        cluster::ClusterLogsArgs,
        commands::cluster::members::logs,
        "Print what the containers of a cluster have written",
        examples: "coracle cluster logs -f gateway             # follows\n\
                   coracle cluster -f gateway.toml logs -f db  # the first -f is the file"
    ),
    command!(
        "cluster attach",
        Networks,
        cluster::ClusterAttachArgs,
        commands::cluster::members::attach,
        "Show what a cluster writes from now on, until ctrl-C, which does not end it"
    ),
    command!(
        "cluster cp",
        Networks,
        cluster::ClusterCpArgs,
        commands::cluster::members::cp,
        "Copy files between the host and containers of a cluster, or between these",
        examples: "coracle cluster cp gateway db:/etc/postgresql .
coracle cluster cp -f job.toml deck.in node1:/job
coracle cluster cp job node1:/job/out node2:/job/in"
    ),
    command!(
        "cluster scale",
        Networks,
        cluster::ClusterScaleArgs,
        commands::cluster::services::scale,
        "Have services of a cluster that is up have more or fewer containers",
        examples: "coracle cluster scale -f site.toml web=3"
    ),
    command!(
        "cluster replace",
        Networks,
        cluster::ClusterReplaceArgs,
        commands::cluster::services::replace,
        "Start new containers of a service, one after the other, in the place of those that are there",
        examples: "coracle cluster replace -f site.toml web      # with the image that the file names now"
    ),
    command!(
        "cluster watch",
        Networks,
        cluster::ClusterWatchArgs,
        commands::cluster::services::watch,
        "Follow the rules of a cluster that is up, and give its batch system nodes, until ctrl-C"
    ),
    command!(
        "cluster explain",
        Networks,
        cluster::ClusterExplainArgs,
        commands::cluster::explain,
        "Print what a cluster file comes to, and do nothing"
    ),
    command!(
        "cluster node",
        Internal,
        cluster::ClusterNodeArgs,
        commands::cluster::services::node,
        "Ask the driver for nodes, as the controller of a batch system does"
    ),
    command!(
        "cluster ask",
        Internal,
        cluster::ClusterAskArgs,
        commands::cluster::services::ask,
        "Pass commands on to the balancer of this container"
    ),
    command!(
        "cluster agent",
        Internal,
        cluster::ClusterAgentArgs,
        commands::cluster::agent,
        "Serve the driver at the other end of standard input and output"
    ),
    command!(
        "cluster spread",
        Internal,
        cluster::ClusterSpreadArgs,
        commands::cluster::spread,
        "Get an image from other hosts, and pass it on: the driver is at standard input and output"
    ),
    command!(
        "cluster idle",
        Internal,
        cluster::ClusterIdleArgs,
        commands::cluster::idle,
        "Wait for ever: the program of a node's container"
    ),
    command!(
        "cluster files",
        Internal,
        cluster::ClusterFilesArgs,
        commands::cluster::files,
        "List what is at a path, with digests"
    ),
    command!(
        "cluster door",
        Internal,
        cluster::ClusterDoorArgs,
        commands::cluster::door,
        "Pass on what node containers ask for to the driver at standard input and output"
    ),
    command!(
        "cluster rank",
        Internal,
        cluster::ClusterRankArgs,
        commands::cluster::ranks::rank,
        "Run a rank of a cluster, as its launcher asks for it"
    ),
    command!(
        "cluster mpi",
        Internal,
        cluster::ClusterMpiArgs,
        commands::cluster::ranks::mpi,
        "Print which MPI a program was linked with"
    ),
    command!(
        "cluster meet",
        Internal,
        cluster::ClusterMeetArgs,
        commands::cluster::meet,
        "Wait until nodes are known by name and take connections"
    ),
    command!(
        "cluster probe",
        Internal,
        cluster::ClusterProbeArgs,
        commands::cluster::probe,
        "Wait until a service takes connections, or answers"
    ),
    command!(
        "cluster vrrp",
        Internal,
        cluster::ClusterVrrpArgs,
        commands::cluster::vrrp,
        "Run a command beside keepalived, which has an auxiliary address of the network"
    ),
    command!(
        "volume create",
        Space,
        system::VolumeCreateArgs,
        commands::volume::create,
        "Make a named volume",
        examples: "coracle volume create --driver sshfs --opt host=ada@far --opt path=/data far
    coracle run --rm -v far:/data debian ls /data"
    ),
    command!(
        "volume ls"["volume list"],
        Space,
        system::VolumeLsArgs,
        commands::volume::list,
        "List volumes"
    ),
    command!(
        "volume rm"["volume remove"],
        Space,
        system::VolumeRmArgs,
        commands::volume::remove,
        "Remove volumes"
    ),
    command!(
        "volume inspect",
        Space,
        system::VolumeInspectArgs,
        commands::volume::inspect,
        "Show all that is known of volumes"
    ),
    command!(
        "volume mount",
        Hidden,
        system::VolumeMountArgs,
        commands::volume::mount,
        "Mount volumes of a driver now, and print where; a container that uses one mounts it too"
    ),
    command!(
        "volume unmount"["volume umount"],
        Hidden,
        system::VolumeMountArgs,
        commands::volume::unmount,
        "Unmount volumes of a driver that no running container uses"
    ),
    command!(
        "volume prune",
        Hidden,
        system::VolumePruneArgs,
        commands::prune::volumes,
        "Remove volumes that no container uses"
    ),
    command!("system df", Space, system::DfArgs, commands::df::run, "Show how much space is used"),
    command!(
        "prune"["system prune"],
        Space,
        system::PruneArgs,
        commands::prune::all,
        "Remove what nothing needs: stopped containers, networks, unnamed images, leftovers"
    ),
    command!(
        "doctor",
        Coracle,
        system::DoctorArgs,
        commands::doctor::run,
        "Say what this host allows, and which engine is chosen"
    ),
    command!(
        "config",
        Coracle,
        system::ConfigArgs,
        commands::config::run,
        "Show every setting and where it comes from"
    ),
    command!("lab", Coracle, system::LabArgs, commands::lab::run,
        "Measure what containers cost a program (starts coracle-lab)",
        examples: "coracle lab try -n 30 --env coracle:I1 --env bwrap --image debian -- ./model in.dat", ends: true),
    command!("migrate udocker", Coracle, system::MigrateArgs, commands::migrate::run,
        "Take over images and containers that udocker has made",
        examples: "coracle migrate udocker
coracle migrate udocker --from /scratch/me/udocker --mv"),
    command!(
        "mkrepo",
        Coracle,
        system::MkrepoArgs,
        commands::mkrepo::run,
        "Make a store in a new directory (udocker)"
    ),
    command!(
        "install",
        Hidden,
        system::InstallArgs,
        commands::mkrepo::install,
        "Nothing has to be installed (udocker)"
    ),
    command!(
        "showconf",
        Hidden,
        system::NoArgs,
        commands::config::showconf,
        "Show the settings in udocker's form (udocker)"
    ),
    command!("version", Coracle, system::FormatArgs, commands::version::run, "Show the version"),
    command!(
        "info"["system info"],
        Coracle,
        system::FormatArgs,
        commands::version::info,
        "Show a summary of the store and the host"
    ),
    command!("completion", Coracle, system::CompletionArgs, completion::run,
        "Print completions for bash, zsh or fish",
        examples: "coracle completion bash > ~/.local/share/bash-completion/completions/coracle"),
    command!("__man", Hidden, system::ManArgs, completion::man, "Write the manual pages"),
];

/// Finds a command by its one or two words: the command, how it was written, and how many words
/// that took.
pub(super) fn find(first: &str, second: Option<&str>) -> Option<(&'static Command, String, usize)> {
    let pair = second.map(|second| format!("{first} {second}"));
    let named = |wanted: &str| {
        COMMANDS.iter().find(|command| command.path == wanted || command.aliases.contains(&wanted))
    };
    if let Some(pair) = pair.filter(|_| is_group(first)) {
        return named(&pair).map(|command| (command, pair, 2));
    }
    named(first).map(|command| (command, first.to_owned(), 1))
}

pub(super) fn is_group(word: &str) -> bool {
    GROUPS.iter().any(|(name, _)| *name == word)
}

/// Names of the top: commands and groups.
pub(super) fn top_names() -> impl Iterator<Item = &'static str> {
    let commands = COMMANDS.iter().map(|command| command.path);
    commands
        .filter(|path| !path.contains(' ') && !path.starts_with('_'))
        .chain(GROUPS.iter().map(|(name, _)| *name))
}

/// The commands of a group: how each is written after the group's name, and what it is.
pub(super) fn group_commands(
    group: &str,
) -> impl Iterator<Item = (&'static str, &'static Command)> {
    COMMANDS.iter().flat_map(move |command| {
        let paths = std::iter::once(&command.path).chain(command.aliases);
        paths.filter_map(move |path| match path.split_once(' ') {
            Some((first, rest)) if first == group => Some((rest, command)),
            _ => None,
        })
    })
}

pub(super) fn group_names(group: &str) -> impl Iterator<Item = &'static str> {
    group_commands(group).map(|(name, _)| name)
}
