//! A program beside `keepalived`, which gives an auxiliary address of the network to one of several
//! containers by VRRP (RFC 5798), and to another one within a second after that has gone.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, io};

use net::route;
use remote::wire::messages::Ended;
use rustix::process::{Pid, Signal};
use sys::event::{MaskGuard, SignalFd, SignalSet};

use crate::error::{Error, Result};
use crate::inside;

/// Seconds between two advertisements. Another container takes the address over when three of them
/// are missing, and a part of one that follows from its priority.
const INTERVAL: &str = "0.2";
/// What is taken: that a program has ended, and what is passed on.
const SIGNALS: [Signal; 7] = [
    Signal::CHILD,
    Signal::HUP,
    Signal::INT,
    Signal::QUIT,
    Signal::TERM,
    Signal::USR1,
    Signal::USR2,
];
/// How often is looked whether one of the programs has ended, besides when a signal says so.
const GLANCE: Duration = Duration::from_secs(1);
/// `keepalived` tells the others that it ends within so long.
const LAST: Duration = Duration::from_secs(1);
/// The directory for its files in the container.
const DIRECTORY: &str = "/tmp/keepalived";

/// Runs `command` beside `keepalived`, which has the address of `name` while it is the first of
/// those that can. `priority`, 1 to 254: of containers that begin at once the one with the highest
/// has the address. One that comes back does not take it away from the other. Signals go to
/// `command`; where one of the two ends, so does the other. Returns the exit status of `command`.
///
/// # Errors
/// Where the network has no such address, one of the programs cannot be started, or `keepalived`
/// was the first to end.
pub fn run(name: &str, priority: u8, command: &[String]) -> Result<u8> {
    let mut addresses = inside::addresses_of(name).into_iter();
    let v4 = |address| if let IpAddr::V4(address) = address { Some(address) } else { None };
    let address = addresses.find_map(v4).ok_or_else(|| {
        Error::new(format!("the network has no address {name}"))
            .with_hint("coracle network create --aux-address NAME makes one")
    })?;
    let routes = fs::read_to_string("/proc/net/route").unwrap_or_default();
    let (device, bits) = on_link(&routes, address).ok_or_else(|| {
        Error::new(format!("no network device has a route to {address}"))
            .with_hint("only containers with network namespaces (N1, R1) can have the address")
    })?;
    let file = Path::new(DIRECTORY).join("conf");
    let text = conf(name, priority, (address, bits), device);
    // Files that name processes of an earlier start would keep it from beginning.
    let _ = fs::remove_dir_all(DIRECTORY);
    let written = fs::create_dir_all(DIRECTORY).and_then(|()| fs::write(&file, text.as_bytes()));
    written.map_err(|error| Error::new(format!("cannot write {}: {error}", file.display())))?;
    let set = SignalSet::of(&SIGNALS.map(Signal::as_raw));
    let cannot = |error| Error::new(format!("cannot wait for programs: {error}"));
    let _blocked = MaskGuard::block(set).map_err(cannot)?;
    let signals = SignalFd::new(set).map_err(cannot)?;
    let mut keepalived = Command::new("keepalived");
    keepalived.args(["--dont-fork", "--log-console", "--vrrp", "--use-file"]).arg(&file);
    keepalived.args(["--pid", &format!("{DIRECTORY}/pid")]);
    keepalived.args(["--vrrp_pid", &format!("{DIRECTORY}/vrrp-pid")]);
    keepalived.stdin(Stdio::null());
    let Some((program, words)) = command.split_first() else {
        return Err(Error::new("a command is missing"));
    };
    let mut own = Command::new(program);
    // Ended by a signal, it tells the others, and one of them takes over at once.
    let keepalived = started(&mut keepalived, Signal::TERM)?;
    let own = started(own.args(words), Signal::KILL);
    Both { keepalived, own: own? }.wait(&signals).map_err(cannot)?
}

/// Starts a program that gets a signal at the end of this process.
fn started(command: &mut Command, end: Signal) -> Result<Child> {
    sys::child::dies_with(command, end);
    command.spawn().map_err(|error| {
        let program = command.get_program().display();
        let why = Error::new(format!("cannot start {program}: {error}"));
        match error.kind() {
            io::ErrorKind::NotFound => why.with_hint(format!("use an image that has {program}")),
            _ => why,
        }
    })
}

/// Both programs.
struct Both {
    keepalived: Child,
    own: Child,
}

impl Both {
    /// Waits until one of them has ended, and ends the other.
    fn wait(mut self, signals: &SignalFd) -> io::Result<Result<u8>> {
        loop {
            if let Some(status) = self.own.try_wait()? {
                self.end_keepalived();
                return Ok(Ok(Ended::from(status).exit_status()));
            }
            if let Some(status) = self.keepalived.try_wait()? {
                let _ = self.own.kill();
                self.own.wait()?;
                return Ok(Err(Error::new(format!("keepalived has ended: {status}"))));
            }
            if let Some(signal) = signals.next_within(GLANCE)?
                && signal.number != Signal::CHILD.as_raw()
            {
                let _ = sys::event::send_signal(Pid::from_child(&self.own), signal.number);
            }
        }
    }

    fn end_keepalived(&mut self) {
        let _ = sys::event::send_signal(Pid::from_child(&self.keepalived), Signal::TERM.as_raw());
        let until = Instant::now() + LAST;
        while Instant::now() < until && matches!(self.keepalived.try_wait(), Ok(None)) {
            std::thread::sleep(LAST / 50);
        }
        let _ = self.keepalived.kill();
        let _ = self.keepalived.wait();
    }
}

/// The device that has a route to an address, without a gateway, and the bits of its network.
fn on_link(routes: &str, address: Ipv4Addr) -> Option<(&str, u32)> {
    let on_link =
        route::read(routes).filter(|route| route.gateway.is_unspecified() && route.has(address));
    on_link.map(|route| (route.device, route.mask.count_ones())).max_by_key(|(_, bits)| *bits)
}

/// The configuration of `keepalived` (keepalived.conf(5)).
fn conf(name: &str, priority: u8, (address, bits): (Ipv4Addr, u32), device: &str) -> String {
    // Advertisements of the network's other pairs have other numbers, because their addresses are
    // neighbours (1 to 255; RFC 5798, 5.2.3).
    let number = address.octets()[3].max(1);
    let mut text = String::from("global_defs {\n    vrrp_version 3\n}\n");
    let _ = write!(
        text,
        "vrrp_instance {name} {{\n    \
         interface {device}\n    \
         state BACKUP\n    \
         nopreempt\n    \
         virtual_router_id {number}\n    \
         priority {priority}\n    \
         advert_int {INTERVAL}\n    \
         garp_master_refresh 1\n    \
         virtual_ipaddress {{\n        \
         {address}/{bits} dev {device}\n    \
         }}\n\
         }}\n"
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_is_that_of_the_network() {
        let routes = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n\
                      eth0\t00000000\t01005064\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
                      eth0\t00005064\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n\
                      eth1\t00015064\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n";
        let find = |address: [u8; 4]| on_link(routes, address.into());
        assert_eq!(find([100, 80, 255, 254]), Some(("eth0", 16)));
        assert_eq!(find([100, 80, 1, 254]), Some(("eth1", 24)));
        assert_eq!(find([10, 0, 0, 1]), None);
    }

    #[test]
    fn the_configuration_names_address_and_device() {
        let text = conf("web", 99, ([100, 80, 255, 254].into(), 16), "eth0");
        for part in ["vrrp_instance web {", "priority 99", "100.80.255.254/16 dev eth0", "id 254\n"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(conf("web", 1, ([10, 0, 1, 0].into(), 8), "eth0").contains("id 1\n"));
    }
}
