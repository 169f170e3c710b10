//! Known differences between engines and users, each with its reason.
//!
//! A case listed here must fail; the suite reports it when it passes, so the list stays correct.

use testkit::harness::Known;

/// An engine without namespaces answers these with an error that names the engines that have them.
const NO_NAMESPACES: &str = "the case asks for namespaces of the kernel's (--pid, --ipc, --network, --isolate), which engines that trace \
     programs do not have: the error names the engines that do";
const NO_MEMORY: &str = "what stands for memory is a directory on the store's disk: it shows that file system's type and has no size of its own";

const ITS_OWN: &str = "each program that traces in a runtime's container has a user namespace of its own; without namespaces all are the host's, and shared";

const UPPER: &str =
    "the upper directory, whose owner an overlay shows for /, is made by the caller and stays his";

const NO_ROOT: &str = "a runtime of the host's has no emulated root: with one id, calls that only root may make are the kernel's to refuse";

/// The known differences. The in-process engines have those of the tracing engines too, since the
/// rules are the same, and so do those that trace in a runtime's container.
pub(crate) fn known() -> Vec<Known> {
    let inside = ["I", "F", "R2", "R3"].into_iter().flat_map(|engines| {
        KNOWN.iter().filter_map(move |known| {
            let rest = known.case.strip_prefix("P*::")?;
            Some(Known {
                case: Box::leak(format!("{engines}*::{rest}").into_boxed_str()),
                ..*known
            })
        })
    });
    KNOWN.iter().copied().chain(inside).collect()
}

/// Parts of case names; a `*` matches anything. Names of the tracing engines begin with `P`.
const KNOWN: &[Known] = &[
    Known { case: "R1::plain::users::chown_succeeds", reason: NO_ROOT },
    Known { case: "R1::plain::users::owners_come_out_of_export", reason: NO_ROOT },
    Known { case: "R1::plain::users::dropping_privileges", reason: NO_ROOT },
    Known { case: "R1::plain::users::set_groups", reason: NO_ROOT },
    Known { case: "R1::plain::users::mknod_and_fifo", reason: NO_ROOT },
    Known { case: "R1::plain::files::no_way_of_writing_changes_the_image", reason: NO_ROOT },
    Known { case: "N1::range::owners::of_the_root", reason: UPPER },
    Known { case: "R1::range::owners::of_the_root", reason: UPPER },
    Known { case: "R2*::isolate::join_shares_namespaces", reason: ITS_OWN },
    Known { case: "R2*::isolate::join_starts_a_missing_container", reason: ITS_OWN },
    Known { case: "R2*::network::private_reaches_out", reason: NO_NAMESPACES },
    Known { case: "R2*::network::private_publishes", reason: NO_NAMESPACES },
    Known { case: "R3*::network::private_reaches_out", reason: NO_NAMESPACES },
    Known { case: "R3*::network::private_publishes", reason: NO_NAMESPACES },
    Known {
        case: "R*::status::no_process_between",
        reason: "the runtime makes the container's first process as its own child, so the command stays as that process's parent",
    },
    Known {
        case: "::env::arguments_need_not_be_utf8",
        reason: "a container's record is JSON, and so is OCI's: words must be UTF-8, and others are refused with that reason",
    },
    Known { case: "P*::mounts::memory", reason: NO_MEMORY },
    Known { case: "P*::mounts::long_form", reason: NO_MEMORY },
    Known { case: "P*::devices::no_disks_no_memory", reason: NO_NAMESPACES },
    Known { case: "P*::devices::shared_memory", reason: NO_NAMESPACES },
    Known { case: "P*::devices::proc_is_there", reason: NO_NAMESPACES },
    Known { case: "P*::exec::same_files_same_namespaces", reason: NO_NAMESPACES },
    Known { case: "P*::exec::ends_with_the_container", reason: NO_NAMESPACES },
    Known { case: "P*::tty::has_a_name_and_an_owner", reason: NO_NAMESPACES },
    Known { case: "P*::life::init_reaps", reason: NO_NAMESPACES },
    Known { case: "P*::life::top_shows_processes", reason: NO_NAMESPACES },
    Known { case: "P*::network::none", reason: NO_NAMESPACES },
    Known { case: "P*::network::publishing_needs_a_private_network", reason: NO_NAMESPACES },
    Known { case: "P*::isolate::isolate_keeps_apart", reason: NO_NAMESPACES },
    Known { case: "P*::isolate::masked_paths", reason: NO_NAMESPACES },
    Known { case: "P*::isolate::namespaces_of_another", reason: NO_NAMESPACES },
    Known {
        case: "P*::isolate::capabilities",
        reason: "sets of capabilities of the user's choice (--cap-add, --cap-drop) are not emulated: the error names the engines that have them",
    },
    Known {
        case: "P*::isolate::filtered_calls",
        reason: "filters of the user's choice (--security-opt seccomp) are not installed beside the tracer's: the error names the engines that can",
    },
    Known {
        case: "P*::isolate::no_new_privileges",
        reason: "the kernel's own flag is set for every program that is traced by a filter, and shown as not set; the option changes nothing more",
    },
    Known {
        case: "P2::*::nest::in_podman",
        reason: "a tracer of every call skips one by the number -1, and the filter of podman's and Docker's answers that number with ENOSYS; P1 works there, \
            because the kernel asks no filter again for what another filter has stopped",
    },
];
