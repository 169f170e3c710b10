use super::*;
use crate::identity::{Credentials, Groups};
use crate::testing::tree::Body;
use crate::testing::{Bench, Fake, binding, task};
use crate::world::{Binding, Identity, Kind};
use abi::syscalls::{ARCH_I386, ARCH_X86_64};
use std::format;
use std::string::{String, ToString};
use std::vec;
use std::vec::Vec;

const IDS: Identity = Identity { host_uid: 1000, host_gid: 1001, uid: 0, gid: 0 };
const TABLE: [Binding<'static>; 3] = [
    binding("/", "/c", Kind::Tree),
    binding("/proc", "/proc", Kind::Proc),
    binding("/tmp", "/host/tmp", Kind::Host),
];

fn fake() -> Fake {
    let mut fake = Fake::new();
    fake.dir("/c/run").dir("/c/tmp").dir("/host/tmp").dir("/proc/42").chdir("/c/run");
    fake.node("/c/run/old", Body::Socket, 0o755);
    fake.link("/c/var/run", "/run");
    fake
}

fn unix(path: &str) -> Vec<u8> {
    let mut bytes = vec![1, 0];
    bytes.extend_from_slice(path.as_bytes());
    bytes.push(0);
    bytes
}

fn call(op: Op, arguments: [u64; 6]) -> Call {
    let number = op.entry().number(abi::calls::Arch::X86_64).unwrap();
    Call { arch: ARCH_X86_64, number, arguments }
}

fn ask(bench: &mut Bench<'_>, op: Op, arguments: [u64; 6]) -> Result<Verdict> {
    bench.context(|context| enter(context, &call(op, arguments), op))
}

/// The path in the address that the kernel gets.
fn path(bench: &Bench<'_>, at: u64, length: u64) -> String {
    let bytes = bench.fake.peek(at, length as usize);
    assert_eq!(bytes[..2], [1, 0]);
    assert_eq!(bytes.last(), Some(&0));
    String::from_utf8(bytes[2..bytes.len() - 1].to_vec()).unwrap()
}

#[test]
fn the_kernel_gets_host_names() {
    let cases = [
        ("/run/old", Op::Connect, "/c/run/old"),
        ("/var/run/old", Op::Connect, "/c/run/old"),
        ("/tmp/new", Op::Bind, "/host/tmp/new"),
        ("../run/new", Op::Bind, "/c/run/new"),
    ];
    for (guest, op, host) in cases {
        let address = unix(guest);
        let mut bench = Bench::new(fake(), &TABLE);
        bench.fake.map(0x1000, &address);
        let verdict = ask(&mut bench, op, [3, 0x1000, address.len() as u64, 0, 0, 0]);
        let Ok(Verdict::Instead(instead, After::Nothing)) = verdict else {
            panic!("{guest}: {verdict:?}");
        };
        assert_eq!(instead.number, call(op, [0; 6]).number);
        assert_eq!(path(&bench, instead.arguments[1], instead.arguments[2]), host);
        assert!(bench.fake.held.is_empty());
    }
}

#[test]
fn addresses_without_a_path_pass() {
    let mut all = unix("/run/old");
    all.truncate(1);
    let cases: [(&[u8], u64); 7] = [
        (b"\x01\0\0abstract", 11),
        (b"\x01\0", 2),
        (b"\x02\0\x1f\x90\x7f\0\0\x01", 8),
        (b"\x01\0/run", 111),
        (b"\x01\0/run", u64::from(u32::MAX)),
        (&all, 20),
        (b"", 0),
    ];
    for (bytes, length) in cases {
        let mut bench = Bench::new(fake(), &TABLE);
        bench.fake.map(0x1000, bytes);
        for op in [Op::Bind, Op::Connect] {
            let verdict = ask(&mut bench, op, [3, 0x1000, length, 0, 0, 0]);
            assert_eq!(verdict, Ok(Verdict::Pass), "{bytes:?}");
        }
    }
}

/// An address need not end in a NUL, and no byte behind it is read.
#[test]
fn an_address_ends_where_its_length_says() {
    let mut bench = Bench::new(fake(), &TABLE);
    bench.fake.map(0x1000, b"\x01\0/run/old");
    let verdict = ask(&mut bench, Op::Connect, [3, 0x1000, 10, 0, 0, 0]);
    let Ok(Verdict::Instead(instead, _)) = verdict else { panic!("{verdict:?}") };
    assert_eq!(path(&bench, instead.arguments[1], instead.arguments[2]), "/c/run/old");
    let longest = format!("/run/{}", "x".repeat(103));
    bench.fake.map(0x2000, &unix(&longest)[..110]);
    let verdict = ask(&mut bench, Op::Bind, [3, 0x2000, 110, 0, 0, 0]);
    assert_eq!(verdict, Err(Errno::ENAMETOOLONG), "the alias does not help a name of 103 bytes");
}

#[test]
fn errors_of_names_are_errors_of_the_call() {
    let mut bench = Bench::new(fake(), &TABLE);
    for (guest, error) in [("/run/none", Errno::ENOENT), ("/run/old/x", Errno::ENOTDIR)] {
        let address = unix(guest);
        bench.fake.map(0x1000, &address);
        let verdict = ask(&mut bench, Op::Connect, [3, 0x1000, address.len() as u64, 0, 0, 0]);
        // If the file does not exist, the kernel may report that.
        match verdict {
            Err(errno) => assert_eq!(errno, error),
            Ok(Verdict::Instead(..)) => {}
            other => panic!("{guest}: {other:?}"),
        }
    }
}

#[test]
fn long_host_names_go_through_an_alias_and_come_back() {
    let deep = format!("/c{}/s", "/0123456789".repeat(12));
    let mut fake = fake();
    fake.node(&deep, Body::Socket, 0o755);
    // A path that is short for the guest: a binding of the deep directory.
    let parent = deep.strip_suffix("/s").unwrap();
    let table = [binding("/", "/c", Kind::Tree), binding("/d", parent, Kind::Host)];
    let mut bench = Bench::new(fake, &table);
    bench.fake.map(0x1000, &unix("/d/s"));
    let verdict = ask(&mut bench, Op::Connect, [3, 0x1000, 7, 0, 0, 0]);
    let Ok(Verdict::Instead(instead, After::Nothing)) = verdict else { panic!("{verdict:?}") };
    let host = path(&bench, instead.arguments[1], instead.arguments[2]);
    assert!(host.starts_with("/proc/1/fd/") && host.ends_with("/s"), "{host}");
    assert!(bench.fake.held.is_empty(), "the alias took the directory over");
    let told = returned_name(&mut bench, &host, 128);
    assert_eq!(told, ("/d/s".to_string(), 7));
}

#[test]
fn aliases_are_translated_to_the_names_of_directories() {
    let deep = format!("/c{}", "/0123456789".repeat(12));
    let mut fake = fake();
    fake.node(&format!("{deep}/s"), Body::Socket, 0o755);
    for link in ["/tmp/.cor-0123456f/12ab", "/tmp/.cor-0123456f/12ag", "/tmp/else/12ab"] {
        fake.node(link, Body::Link(deep.clone().into()), 0o777);
    }
    let table = [binding("/", "/c", Kind::Tree), binding("/d", &deep, Kind::Host)];
    let mut bench = Bench::new(fake, &table);
    let mut told = |host: &str| returned_name(&mut bench, host, 128).0;
    assert_eq!(told("/tmp/.cor-0123456f/12ab/s"), "/d/s");
    for other in [
        "/tmp/.cor-0123456f/12ag/s",
        "/tmp/.cor-0123456f/12ab/",
        "/tmp/.cor-0123456f",
        "/tmp/else/12ab/s",
    ] {
        assert_eq!(told(other), other);
    }
}

#[test]
fn names_have_their_limits() {
    let parent = format!("/c{}", "/0123456789".repeat(12));
    let table = [binding("/", "/c", Kind::Tree), binding("/d", &parent, Kind::Host)];
    for (length, bind, reach) in [
        (57, "behind", "behind"),
        (79, "behind", "behind"),
        (80, "behind", "itself"),
        (104, "", "itself"),
    ] {
        let name = "x".repeat(length);
        for (op, wanted) in [(Op::Bind, bind), (Op::Connect, reach)] {
            let mut fake = fake();
            fake.dir(&parent);
            if op == Op::Connect {
                fake.node(&format!("{parent}/{name}"), Body::Socket, 0o755);
            }
            let mut bench = Bench::new(fake, &table);
            bench.fake.map(0x1000, &unix(&format!("/d/{name}"))[..length + 5]);
            let verdict = ask(&mut bench, op, [3, 0x1000, length as u64 + 5, 0, 0, 0]);
            let found = match verdict {
                Ok(Verdict::Instead(instead, After::Nothing)) => {
                    let host = path(&bench, instead.arguments[1], instead.arguments[2]);
                    assert!(host.starts_with("/proc/1/fd/"), "{host}");
                    if host.ends_with(&format!("/{name}")) { "behind" } else { "itself" }
                }
                Err(Errno::ENAMETOOLONG) => "",
                other => panic!("{other:?}"),
            };
            assert_eq!(found, wanted, "{op:?} {length}");
            assert!(bench.fake.held.is_empty());
        }
    }
}

#[test]
fn addresses_that_change_meanwhile_are_harmless() {
    let mut bench = Bench::new(fake(), &TABLE);
    let long = format!("/proc/1/fd/{}/s", "1".repeat(112));
    // At most as much as an address holds.
    assert_eq!(returned_name(&mut bench, &long, 128).1, 110);
}

/// Calls `getsockname` with the kernel's answer `host` and room for `room` bytes; returns what the
/// guest finds, and the length it gets.
fn returned_name(bench: &mut Bench<'_>, host: &str, room: u32) -> (String, u32) {
    let address = unix(host);
    bench.fake.map(0x3000, &vec![0xee; room as usize + 1]).map(0x3800, &room.to_le_bytes());
    let arguments = [3, 0x3000, 0x3800, 0, 0, 0];
    let verdict = ask(bench, Op::Getsockname, arguments).unwrap();
    let (to, length, after) = match verdict {
        Verdict::Watch(after) => (0x3000, 0x3800, after),
        Verdict::Instead(instead, after) => (instead.arguments[1], instead.arguments[2], after),
        other => panic!("{other:?}"),
    };
    // The kernel writes as much as there is room for.
    let there = u32::from_le_bytes(bench.fake.peek(length, 4).try_into().unwrap()) as usize;
    let mut memory = bench.fake.peek(to, there);
    let shown = address.len().min(there);
    memory[..shown].copy_from_slice(&address[..shown]);
    crate::Guest::write(&mut bench.fake, to, &memory).unwrap();
    let whole = (address.len() as u32).to_le_bytes();
    crate::Guest::write(&mut bench.fake, length, &whole).unwrap();
    let result =
        bench.context(|context| leave(context, after, &call(Op::Getsockname, arguments), 0));
    assert_eq!(result, 0);
    let told = u32::from_le_bytes(bench.fake.peek(0x3800, 4).try_into().unwrap());
    let bytes = bench.fake.peek(0x3000, told.min(room) as usize);
    assert_eq!(bench.fake.peek(0x3000, room as usize + 1).last(), Some(&0xee), "one byte too many");
    let text = bytes.get(2..).unwrap_or(&[]);
    (String::from_utf8_lossy(text).trim_end_matches('\0').to_string(), told)
}

#[test]
fn the_guest_gets_guest_names() {
    let mut bench = Bench::new(fake(), &TABLE);
    assert_eq!(returned_name(&mut bench, "/c/run/old", 128), ("/run/old".to_string(), 11));
    assert_eq!(returned_name(&mut bench, "/c/run/old", 110), ("/run/old".to_string(), 11));
    // Ten bytes of eleven, and the true length.
    assert_eq!(returned_name(&mut bench, "/c/run/old", 10), ("/run/old".to_string(), 11));
    assert_eq!(returned_name(&mut bench, "/c/run/old", 6), ("/run".to_string(), 11));
    assert_eq!(returned_name(&mut bench, "/c/run/old", 0), (String::new(), 11));
    assert_eq!(returned_name(&mut bench, "/host/tmp/x", 64), ("/tmp/x".to_string(), 9));
    assert_eq!(returned_name(&mut bench, "relative", 64), ("relative".to_string(), 11));
    assert_eq!(returned_name(&mut bench, "/elsewhere", 64), ("/elsewhere".to_string(), 13));
    bench.task.root.set(b"/run").unwrap();
    assert_eq!(returned_name(&mut bench, "/c/run/old", 128), ("/old".to_string(), 7));
}

#[test]
fn bind_records_the_owner() {
    let mut bench = Bench::new(fake(), &TABLE);
    bench.world.identity = Some(IDS);
    bench.task = crate::Task::new(Credentials::new(5, 6, Groups::NONE), 0o022);
    bench.fake.mode("/c/run", 0o777);
    bench.fake.map(0x1000, &unix("/run/new"));
    let arguments = [3, 0x1000, 11, 0, 0, 0];
    let verdict = ask(&mut bench, Op::Bind, arguments);
    let Ok(Verdict::Instead(_, After::Bound)) = verdict else { panic!("{verdict:?}") };
    bench.fake.node("/c/run/new", Body::Socket, 0o755);
    let result =
        bench.context(|context| leave(context, After::Bound, &call(Op::Bind, arguments), 0));
    assert_eq!(result, 0);
    assert_eq!(bench.fake.notes.len(), 1);
    assert!(bench.fake.notes.values().next().unwrap().starts_with(b"5:6:"));
    bench.fake.mode("/c/run", 0o755);
    assert_eq!(ask(&mut bench, Op::Bind, arguments), Err(Errno::EADDRINUSE));
    bench.fake.map(0x1000, &unix("/run/nex"));
    assert_eq!(ask(&mut bench, Op::Bind, arguments), Err(Errno::EACCES));
    bench.task = task();
    let verdict = ask(&mut bench, Op::Bind, arguments);
    assert!(matches!(verdict, Ok(Verdict::Instead(_, After::Nothing))), "{verdict:?}");
}

fn words(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// `struct msghdr` of 64 bits.
fn header(name: u64, room: u64, control: u64, length: u64) -> Vec<u8> {
    words(&[name, room, 0x9000, 1, control, length, 0])
}

fn credentials(pid: u32, uid: u32, gid: u32) -> Vec<u8> {
    let mut bytes = words(&[28, 1 | 2 << 32]);
    bytes.extend([pid, uid, gid].iter().flat_map(|id| id.to_le_bytes()));
    bytes.extend([0; 4]);
    bytes
}

#[test]
fn messages_carry_names_and_ids() {
    let mut bench = Bench::new(fake(), &TABLE);
    bench.world.identity = Some(IDS);
    bench.fake.map(0x1000, &unix("/run/old")).map(0x2000, &credentials(42, 0, 7));
    bench.fake.map(0x4000, &header(0x1000, 11, 0x2000, 32));
    let verdict = ask(&mut bench, Op::Sendmsg, [3, 0x4000, 0, 0, 0, 0]);
    let Ok(Verdict::Instead(instead, After::Nothing)) = verdict else { panic!("{verdict:?}") };
    let sent = bench.fake.peek(instead.arguments[1], 56);
    let word = |at: usize| u64::from_le_bytes(sent[at..at + 8].try_into().unwrap());
    assert_eq!(path(&bench, word(0), word(8)), "/c/run/old");
    assert_eq!(word(16), 0x9000);
    assert_eq!(bench.fake.peek(word(32), 32), credentials(42, 1000, 1001));
    assert_eq!(bench.fake.peek(0x2000, 32), credentials(42, 0, 7), "the guest's own stays");
    // A thread without capabilities must not claim other ids.
    bench.task = crate::Task::new(Credentials::new(5, 6, Groups::NONE), 0o022);
    let verdict = ask(&mut bench, Op::Sendmsg, [3, 0x4000, 0, 0, 0, 0]);
    assert!(matches!(verdict, Err(Errno::EACCES | Errno::EPERM)), "{verdict:?}");
    bench.fake.map(0x4000, &header(0, 0, 0, 0));
    assert_eq!(ask(&mut bench, Op::Sendmsg, [3, 0x4000, 0, 0, 0, 0]), Ok(Verdict::Pass));
    assert_eq!(ask(&mut bench, Op::Sendmsg, [3, 0, 0, 0, 0, 0]), Ok(Verdict::Pass));
}

#[test]
fn a_batch_is_sent_from_copies() {
    let mut bench = Bench::new(fake(), &TABLE);
    bench.fake.map(0x1000, &unix("/run/old"));
    let mut batch = Vec::new();
    for name in [0x1000, 0, 0x1000] {
        batch.extend(header(name, 11, 0, 0));
        batch.extend([0; 8]);
    }
    bench.fake.map(0x4000, &batch);
    let arguments = [3, 0x4000, 3, 0, 0, 0];
    let verdict = ask(&mut bench, Op::Sendmmsg, arguments);
    let Ok(Verdict::Instead(instead, after)) = verdict else { panic!("{verdict:?}") };
    assert_eq!(instead.arguments[2], 3);
    let scratch = instead.arguments[1];
    for (index, length) in [5_u32, 6, 7].into_iter().enumerate() {
        let at = scratch + index as u64 * 64 + 56;
        crate::Guest::write(&mut bench.fake, at, &length.to_le_bytes()).unwrap();
    }
    bench.context(|context| leave(context, after, &call(Op::Sendmmsg, arguments), 2));
    let lengths = [0, 1, 2].map(|index| bench.fake.peek(0x4000 + index * 64 + 56, 1)[0]);
    assert_eq!(lengths, [5, 6, 0], "only what was sent");
}

#[test]
fn received_messages_show_the_guests_names_and_ids() {
    let mut bench = Bench::new(fake(), &TABLE);
    bench.world.identity = Some(IDS);
    let mut other = task();
    other.creds = Credentials::new(33, 44, Groups::NONE);
    bench.fake.tasks.insert(77, other);
    bench.fake.map(0x1000, &[0xee; 16]).map(0x2000, &credentials(77, 1000, 1001));
    bench.fake.map(0x4000, &header(0x1000, 16, 0x2000, 64));
    let arguments = [3, 0x4000, 0, 0, 0, 0];
    let verdict = ask(&mut bench, Op::Recvmsg, arguments);
    let Ok(Verdict::Instead(instead, after)) = verdict else { panic!("{verdict:?}") };
    // The kernel fills the copy in: a name, 32 bytes of control data, MSG_CTRUNC.
    let copy = instead.arguments[1];
    let name = u64::from_le_bytes(bench.fake.peek(copy, 8).try_into().unwrap());
    crate::Guest::write(&mut bench.fake, name, &unix("/c/run/old")).unwrap();
    crate::Guest::write(&mut bench.fake, copy + 8, &13_u32.to_le_bytes()).unwrap();
    crate::Guest::write(&mut bench.fake, copy + 40, &32_u64.to_le_bytes()).unwrap();
    crate::Guest::write(&mut bench.fake, copy + 48, &8_u32.to_le_bytes()).unwrap();
    assert_eq!(bench.context(|context| leave(context, after, &call(Op::Recvmsg, arguments), 1)), 1);
    assert_eq!(bench.fake.peek(0x4000, 56), {
        let mut wanted = header(0x1000, 11, 0x2000, 32);
        wanted[48] = 8;
        wanted
    });
    assert_eq!(bench.fake.peek(0x1000, 11), unix("/run/old"));
    assert_eq!(bench.fake.peek(0x1000, 16)[11..], [0xee; 5], "no byte more");
    assert_eq!(bench.fake.peek(0x2000, 32), credentials(77, 33, 44));
}

#[test]
fn peers_have_emulated_ids() {
    let mut bench = Bench::new(fake(), &TABLE);
    bench.world.identity = Some(Identity { uid: 500, gid: 501, ..IDS });
    let mut other = task();
    other.creds = Credentials::new(33, 44, Groups::NONE);
    bench.fake.tasks.insert(77, other);
    let arguments = [3, 1, 17, 0x1000, 0x2000, 0];
    let cases = [
        (77, 1000, 1001, 33, 44),
        (88, 1000, 1001, 500, 501),
        (88, 7, 8, 7, 8),
        (42, 1000, 1001, 0, 0),
    ];
    for (pid, uid, gid, seen_uid, seen_gid) in cases {
        let bytes = |ids: [u32; 3]| ids.iter().flat_map(|id| id.to_le_bytes()).collect::<Vec<u8>>();
        bench.fake.map(0x1000, &bytes([pid, uid, gid])).map(0x2000, &12_u32.to_le_bytes());
        assert_eq!(ask(&mut bench, Op::Getsockopt, arguments), Ok(Verdict::Watch(After::Peer)));
        bench.context(|context| leave(context, After::Peer, &call(Op::Getsockopt, arguments), 0));
        assert_eq!(bench.fake.peek(0x1000, 12), bytes([pid, seen_uid, seen_gid]));
    }
    assert!(ask(&mut bench, Op::Getsockopt, [3, 1, 59, 0x1000, 0x2000, 0]).is_err());
    assert_eq!(ask(&mut bench, Op::Getsockopt, [3, 1, 4, 0x1000, 0x2000, 0]), Ok(Verdict::Pass));
    let audit = ask(&mut bench, Op::Socket, [16, 3, 9, 0, 0, 0]);
    assert_eq!(audit, Err(Errno::EPROTONOSUPPORT));
    assert_eq!(ask(&mut bench, Op::Socket, [16, 3, 0, 0, 0, 0]), Ok(Verdict::Pass));
}

#[test]
fn socketcall_is_decided_as_the_call_it_contains() {
    let mut bench = Bench::new(fake(), &TABLE);
    let array = [3_u32, 0x1000, 11].iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    bench.fake.map(0x1000, &unix("/run/old")).map(0x2000, &array);
    let call = Call { arch: ARCH_I386, number: 102, arguments: [3, 0x2000, 0, 0, 0, 0] };
    let verdict = bench.context(|context| enter(context, &call, Op::Socketcall));
    let Ok(Verdict::Instead(instead, After::Nothing)) = verdict else { panic!("{verdict:?}") };
    assert_eq!((instead.number, instead.arguments[0]), (102, 3));
    let words = bench.fake.peek(instead.arguments[1], 12);
    let word = |at: usize| u64::from(u32::from_le_bytes(words[at..at + 4].try_into().unwrap()));
    assert_eq!(word(0), 3);
    assert_eq!(path(&bench, word(4), word(8)), "/c/run/old");
}

proptest::proptest! {
    /// Guests may put arbitrary bytes into control buffers and headers.
    #[test]
    fn arbitrary_bytes_are_harmless(
        bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..512),
        length in 0_u64..600,
        op in proptest::sample::select(vec![
            Op::Sendmsg, Op::Recvmsg, Op::Sendmmsg, Op::Recvmmsg, Op::Bind, Op::Connect,
            Op::Getsockname, Op::Accept4, Op::Getsockopt,
        ]),
    ) {
        let mut bench = Bench::new(fake(), &TABLE);
        bench.world.identity = Some(IDS);
        bench.fake.map(0x2000, &bytes).map(0x1000, &bytes);
        bench.fake.map(0x4000, &[header(0x1000, length, 0x2000, length), vec![0; 8]].concat());
        let at = if matches!(op, Op::Sendmsg | Op::Recvmsg | Op::Sendmmsg | Op::Recvmmsg) { 0x4000 } else { 0x1000 };
        let arguments = [3, at, 1, 0x2000, 0x1000, 0];
        if let Ok(Verdict::Watch(after) | Verdict::Instead(_, after)) = ask(&mut bench, op, arguments) {
            bench.context(|context| leave(context, after, &call(op, arguments), 1));
        }
        proptest::prop_assert!(bench.fake.held.is_empty());
    }
}
