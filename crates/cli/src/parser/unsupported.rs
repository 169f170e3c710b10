//! Docker's and udocker's flags, and Docker's commands, that Coracle does not have, and what to do
//! in their place.
//!
//! A flag is never accepted and ignored: who typed it learns here why it is not there.

const FLAGS: &[(&str, &str)] = &[
    (
        "--volume-driver",
        "make the volume before: coracle volume create --driver NAME VOLUME; then -v VOLUME:DIRECTORY",
    ),
    ("--link", "containers share the host's network by default and reach each other at 127.0.0.1"),
    ("--link-local-ip", "link-local addresses follow from IPv4 ones in a network; see --ip"),
    ("--mac-address", "ethernet addresses follow from IPv4 ones in a network; see --ip"),
    ("--ipam-driver", "addresses are chosen by the engine itself; see --subnet and --ip-range"),
    ("--ipam-opt", "addresses are chosen by the engine itself; see --subnet and --ip-range"),
    ("--config-from", "networks have no configurations apart; give the options themselves"),
    ("--config-only", "networks have no configurations apart; give the options themselves"),
    ("--ingress", "there is no swarm"),
    ("--driver-opt", "networks have no options for single containers"),
    ("--gw-priority", "networks have no options for single containers"),
    ("--domainname", "give the whole name: --hostname NAME.DOMAIN"),
    ("--cpu-count", "that is for Windows; use --cpus"),
    ("--cpu-percent", "that is for Windows; use --cpus"),
    ("--io-maxbandwidth", "that is for Windows; there are no limits on input and output"),
    ("--io-maxiops", "that is for Windows; there are no limits on input and output"),
    (
        "--disable-content-trust",
        "signatures are not checked; pull by digest (NAME@sha256:...) to be sure",
    ),
    ("--kernel", "the host's kernel release is shown"),
    ("--checkpoint", "there are no checkpoints"),
    ("--use-api-socket", "there is no API socket"),
    ("--privileged", "a command in a container has what the container has; run that --privileged"),
];

/// What to do in place of `flag`, where it is known and left out.
pub(super) fn advice(flag: &str) -> Option<&'static str> {
    let name = flag.split('=').next().unwrap_or(flag);
    FLAGS.iter().find(|(known, _)| *known == name).map(|(_, advice)| *advice)
}

/// Commands of Docker that are not there, and what to do in their place.
const COMMANDS: &[(&str, &str)] = &[
    (
        "build",
        "building images is not there yet; build elsewhere and 'coracle pull' or 'coracle load'",
    ),
    ("commit", "use 'coracle export' and 'coracle import'"),
    ("push", "use 'coracle save --format oci-archive' and 'skopeo copy'"),
    (
        "buildx",
        "building images is not there yet; build elsewhere and 'coracle pull' or 'coracle load'",
    ),
    (
        "context",
        "there is one context, this host, and no daemon; 'ssh HOST coracle ...' for another host",
    ),
    (
        "compose",
        "'coracle cluster up -f FILE' starts the services of a file; 'coracle cluster --help'",
    ),
    (
        "builder",
        "building images is not there yet; build elsewhere and 'coracle pull' or 'coracle load'",
    ),
    ("manifest create", "lists of manifests are read, and cannot be made yet"),
    ("manifest push", "lists of manifests are read, and cannot be made yet"),
    ("swarm", "there is no swarm"),
];

/// What to do in place of a command that is not there.
pub(super) fn command(word: &str) -> Option<&'static str> {
    COMMANDS.iter().find(|(name, _)| *name == word).map(|(_, advice)| *advice)
}
