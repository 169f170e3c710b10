use super::frame::tests::{asks, packet};
use super::neighbour::tests as six;
use super::*;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::sync::Mutex;
use std::time::{Duration, Instant};

const DB: Ipv4Addr = Ipv4Addr::new(100, 80, 0, 2);
const WEB: Ipv4Addr = Ipv4Addr::new(100, 80, 0, 3);
const FAR: Ipv4Addr = Ipv4Addr::new(100, 80, 0, 9);
const VIP: Ipv4Addr = Ipv4Addr::new(100, 80, 0, 250);

/// A member whose device is one end of a pair of sockets.
struct Member {
    device: OwnedFd,
    number: u64,
}

impl Member {
    fn new(switch: &Switch, network: &str, address: Ipv4Addr) -> Self {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (device, port) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
                .unwrap();
        let (network, auxiliary) = (network.to_owned(), vec![VIP]);
        let place = Place { network, address, ranges: six::lab(), auxiliary };
        Self { device, number: switch.add(place, port).unwrap() }
    }

    fn send(&self, frame: &[u8]) {
        rustix::net::send(&self.device, frame, SendFlags::empty()).unwrap();
    }

    fn now(&self) -> Option<Vec<u8>> {
        let mut frame = vec![0; frame::LONGEST];
        let (length, _) =
            rustix::net::recv(&self.device, &mut frame[..], RecvFlags::empty()).ok()?;
        frame.truncate(length);
        Some(frame)
    }

    #[track_caller]
    fn gets(&self) -> Vec<u8> {
        let until = Instant::now() + Duration::from_secs(10);
        loop {
            match self.now() {
                Some(frame) => return frame,
                None if Instant::now() > until => panic!("nothing came"),
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }
}

#[test]
fn frames_reach_their_member_alone_and_whole() {
    let switch = Switch::start().unwrap();
    let [db, web] = [DB, WEB].map(|address| Member::new(&switch, "lab", address));
    let other = Member::new(&switch, "other", WEB);
    for length in [0, 1, 1400, 64 << 10] {
        let frame = packet(DB, WEB, &vec![7; length.min(frame::LONGEST - 44)]);
        db.send(&frame);
        assert_eq!(web.gets(), frame);
    }
    // What goes nowhere comes before something that arrives.
    db.send(&packet(DB, FAR, &[]));
    db.send(&packet(FAR, WEB, &[1]));
    db.send(&[1, 2, 3]);
    db.send(&packet(DB, WEB, &[2]));
    assert_eq!(web.gets(), packet(DB, WEB, &[2]));
    assert_eq!((db.now(), other.now()), (None, None));
}

#[test]
fn what_a_member_has_sent_before_its_end_arrives_in_order() {
    let switch = Switch::start().unwrap();
    let web = Member::new(&switch, "lab", WEB);
    for round in 0..200 {
        let db = Member::new(&switch, "lab", DB);
        let frames = [0, 1, 2].map(|number| packet(DB, WEB, &[round, number]));
        for frame in &frames {
            db.send(frame);
        }
        switch.finish(db.number);
        let came: Vec<_> = std::iter::from_fn(|| web.now()).collect();
        assert_eq!(came, frames, "round {round}");
    }
    assert_eq!(switch.len(), 1);
}

#[test]
fn questions_are_answered_for_members() {
    let switch = Switch::start().unwrap();
    let [db, web] = [DB, WEB].map(|address| Member::new(&switch, "lab", address));
    db.send(&asks(DB, FAR));
    db.send(&asks(DB, WEB));
    let answer = frame::answer(&asks(DB, WEB), WEB, DB).unwrap();
    assert_eq!(db.gets(), answer);
    assert_eq!((db.now(), web.now()), (None, None));
}

#[test]
fn ipv6_leads_to_the_same_members() {
    let switch = Switch::start().unwrap();
    let [db, web] = [DB, WEB].map(|address| Member::new(&switch, "lab", address));
    db.send(&six::asks(DB, FAR));
    db.send(&six::asks(DB, WEB));
    assert_eq!(db.gets(), frame::answer(&six::asks(DB, WEB), WEB, DB).unwrap());
    db.send(&six::packet(DB, FAR, &[]));
    db.send(&six::packet(FAR, WEB, &[1]));
    db.send(&six::packet(DB, WEB, &[2]));
    assert_eq!(web.gets(), six::packet(DB, WEB, &[2]));
    assert_eq!((db.now(), web.now()), (None, None));
}

#[test]
fn broadcasts_reach_all_others_of_the_network() {
    let switch = Switch::start().unwrap();
    let [db, web, far] = [DB, WEB, FAR].map(|address| Member::new(&switch, "lab", address));
    let frame = packet(DB, Ipv4Addr::BROADCAST, &[3]);
    db.send(&frame);
    assert_eq!((web.gets(), far.gets()), (frame.clone(), frame));
    assert_eq!(db.now(), None);
}

#[test]
fn an_auxiliary_address_is_of_the_one_that_has_announced_it_last() {
    let switch = Switch::start().unwrap();
    let [db, web, far] = [DB, WEB, FAR].map(|address| Member::new(&switch, "lab", address));
    let to = |from, to, byte| packet(from, to, &[byte]);
    let readdressed = |frame: &[u8], own| frame::readdressed(frame, &frame::ethernet(own)).concat();
    // Nobody has it, and an address of a member, or of nobody, cannot be announced.
    web.send(&asks(DB, DB));
    web.send(&asks(Ipv4Addr::new(100, 80, 0, 77), Ipv4Addr::new(100, 80, 0, 77)));
    db.send(&asks(DB, VIP));
    db.send(&to(DB, VIP, 1));
    db.send(&to(DB, WEB, 2));
    assert_eq!(web.gets(), to(DB, WEB, 2));
    web.send(&asks(WEB, DB));
    assert_eq!(web.gets(), frame::answer(&asks(WEB, DB), DB, WEB).unwrap());
    assert_eq!((db.now(), switch.held("lab")), (None, vec![]));
    for (member, own, other) in [(&web, WEB, &far), (&far, FAR, &web)] {
        member.send(&asks(VIP, VIP));
        // What a member says is in its order.
        member.send(&to(VIP, DB, 3));
        assert_eq!(db.gets(), to(VIP, DB, 3));
        db.send(&asks(DB, VIP));
        assert_eq!(db.gets(), frame::answer(&asks(DB, VIP), VIP, DB).unwrap());
        db.send(&to(DB, VIP, 4));
        assert_eq!(member.gets(), readdressed(&to(DB, VIP, 4), own));
        // It asks with it, and keeps its own.
        member.send(&asks(VIP, DB));
        assert_eq!(member.gets(), frame::answer(&asks(VIP, DB), DB, VIP).unwrap());
        member.send(&to(own, DB, 5));
        assert_eq!(db.gets(), to(own, DB, 5));
        // No other member speaks for it.
        let others = if own == WEB { FAR } else { WEB };
        other.send(&to(VIP, DB, 6));
        other.send(&to(others, DB, 7));
        assert_eq!(db.gets(), to(others, DB, 7));
        db.send(&to(DB, VIP, 8));
        assert_eq!(member.gets(), readdressed(&to(DB, VIP, 8), own));
        // There is none of IPv6.
        db.send(&six::asks(DB, VIP));
        db.send(&six::packet(DB, VIP, &[9]));
        db.send(&to(DB, own, 10));
        assert_eq!(member.gets(), to(DB, own, 10));
        assert_eq!((db.now(), other.now(), switch.held("lab")), (None, None, vec![VIP]));
    }
    switch.lost("lab", VIP);
    assert!(switch.held("lab").is_empty());
    far.send(&asks(VIP, VIP));
    far.send(&to(FAR, DB, 11));
    assert_eq!(db.gets(), to(FAR, DB, 11));
    assert_eq!(switch.held("lab"), [VIP]);
    switch.remove(far.number);
    assert!(switch.held("lab").is_empty());
}

#[test]
fn ports_go_and_come_back() {
    let switch = Switch::start().unwrap();
    let db = Member::new(&switch, "lab", DB);
    let web = Member::new(&switch, "lab", WEB);
    // A container that is started again has its new port before the old one is gone.
    let again = Member::new(&switch, "lab", WEB);
    switch.remove(web.number);
    db.send(&packet(DB, WEB, &[4]));
    assert_eq!(again.gets(), packet(DB, WEB, &[4]));
    assert_eq!(switch.len(), 2);
    // The other end is closed.
    drop(again);
    let until = Instant::now() + Duration::from_secs(10);
    while switch.len() > 1 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(switch.len(), 1);
    switch.remove(db.number);
    assert!(switch.is_empty() && read(&switch.networks).is_empty());
}

/// A member that does not read loses frames, and the others go on.
#[test]
fn a_full_port_holds_nobody_up() {
    let switch = Switch::start().unwrap();
    let [db, web, far] = [DB, WEB, FAR].map(|address| Member::new(&switch, "lab", address));
    for _ in 0..2000 {
        let frame = packet(DB, WEB, &[5; 1400]);
        while rustix::net::send(&db.device, &frame, SendFlags::empty()) == Err(Errno::AGAIN) {
            std::thread::sleep(Duration::from_micros(100));
        }
    }
    let until = Instant::now() + Duration::from_secs(10);
    while rustix::net::send(&db.device, &packet(DB, FAR, &[6]), SendFlags::empty()).is_err() {
        assert!(Instant::now() < until, "it is not read any more");
        std::thread::sleep(Duration::from_micros(100));
    }
    assert_eq!(far.gets(), packet(DB, FAR, &[6]));
    assert_eq!(web.gets(), packet(DB, WEB, &[5; 1400]));
}

/// Two hosts whose switches are uplinks of each other.
struct Wire(Arc<Switch>, Mutex<Vec<Option<Ipv4Addr>>>);

impl Uplink for &'static Wire {
    fn has(&self, network: &str, address: Ipv4Addr) -> bool {
        network == "lab" && address == FAR
    }

    fn carry(&self, network: &str, to: Option<Ipv4Addr>, frame: &[u8]) {
        self.1.lock().unwrap().push(to);
        self.0.deliver(network, &six::lab(), frame);
    }

    fn announced(&self, network: &str, address: Ipv4Addr, take: &dyn Fn()) {
        assert_eq!((network, address), ("lab", VIP));
        self.1.lock().unwrap().push(Some(address));
        take();
    }

    fn gone(&self, network: &str, address: Ipv4Addr) {
        assert_eq!((network, address), ("lab", VIP));
        self.1.lock().unwrap().push(None);
    }
}

#[test]
fn members_of_other_hosts_are_behind_the_uplink() {
    let (here, there) = (Switch::start().unwrap(), Switch::start().unwrap());
    let wire: &'static Wire = Box::leak(Box::new(Wire(Arc::clone(&there), Mutex::default())));
    here.set_uplink(Box::new(wire));
    let [db, web] = [DB, WEB].map(|address| Member::new(&here, "lab", address));
    let far = Member::new(&there, "lab", FAR);
    db.send(&asks(DB, FAR));
    assert_eq!(db.gets(), frame::answer(&asks(DB, FAR), FAR, DB).unwrap());
    db.send(&packet(DB, FAR, &[8]));
    assert_eq!(far.gets(), packet(DB, FAR, &[8]));
    db.send(&packet(DB, Ipv4Addr::BROADCAST, &[9]));
    assert_eq!(far.gets(), packet(DB, Ipv4Addr::BROADCAST, &[9]));
    assert_eq!(web.gets(), packet(DB, Ipv4Addr::BROADCAST, &[9]));
    assert_eq!(*wire.1.lock().unwrap(), [Some(FAR), None]);
    // Others are told that it is here, and frames from there lead to it.
    db.send(&asks(VIP, VIP));
    db.send(&packet(DB, WEB, &[1]));
    assert_eq!(web.gets(), packet(DB, WEB, &[1]));
    assert_eq!(*wire.1.lock().unwrap(), [Some(FAR), None, Some(VIP)]);
    here.deliver("lab", &six::lab(), &packet(FAR, VIP, &[2]));
    let own = frame::ethernet(DB);
    assert_eq!(db.gets(), frame::readdressed(&packet(FAR, VIP, &[2]), &own).concat());
    let far_away = packet(FAR, DB, &[1]);
    here.deliver("lab", &six::lab(), &far_away);
    assert_eq!(db.gets(), far_away);
    // The same with IPv6.
    db.send(&six::asks(DB, FAR));
    assert_eq!(db.gets(), frame::answer(&six::asks(DB, FAR), FAR, DB).unwrap());
    db.send(&six::packet(DB, FAR, &[2]));
    assert_eq!(far.gets(), six::packet(DB, FAR, &[2]));
    here.deliver("lab", &six::lab(), &six::packet(FAR, DB, &[3]));
    assert_eq!(db.gets(), six::packet(FAR, DB, &[3]));
    wire.1.lock().unwrap().clear();
    here.remove(db.number);
    assert_eq!(*wire.1.lock().unwrap(), [None], "the holder has gone");
}
