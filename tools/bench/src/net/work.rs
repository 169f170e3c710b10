//! What `bench net` runs at both ends: `net-serve ADDRESS PORT` and `net-work ADDRESS PORT KIND
//! COUNT`, in containers and outside of them; and `net-lookup`, for the table alone.
//!
//! The first byte of a connection says what it is for. The caller prints one line: nanoseconds for
//! each of COUNT, or for a stream (COUNT MiB) the seconds and the seconds of processors that both
//! ends took for each GiB.

use std::hint::black_box;
use std::io::{Error, ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use abi::network::{Family, Membership, Port, Protocol, SIZE, Slot, Table, Use};
use rustix::net::sockopt::set_socket_recv_buffer_size;
use rustix::time::{ClockId, clock_gettime};

use xtask::shell::Outcome;

const STREAM: u8 = b's';
const PING_PONG: u8 = b'p';
const CONNECT: u8 = b'c';
/// How many datagrams have come.
const RECEIVED: u8 = b'r';
/// Bytes of each write and read of a stream, as iperf3 has them.
const BLOCK: usize = 128 << 10;
/// How long the other end may take to begin.
const SOON: Duration = Duration::from_secs(20);
/// Bytes of each datagram that is counted, and for how long they are sent.
const DATAGRAM: usize = 1000;
const SENDING: Duration = Duration::from_secs(2);
/// How often who sends at a rate looks at the clock.
const PAUSE: Duration = Duration::from_micros(50);
/// How long the last datagrams may take.
const UNDER_WAY: Duration = Duration::from_millis(300);

/// How many datagrams have come.
static DATAGRAMS: AtomicU64 = AtomicU64::new(0);

/// Seconds of processors that this process has taken.
fn processor() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default().as_secs_f64()
}

fn place(words: &[String]) -> Outcome<(SocketAddr, &[String])> {
    let [address, port, rest @ ..] = words else { return Err("an address and a port".to_owned()) };
    let address = address.parse().map_err(|_| format!("{address} is no address"))?;
    let port = port.parse().map_err(|_| format!("{port} is no port"))?;
    Ok((SocketAddr::new(address, port), rest))
}

/// `net-serve`: serves until it is ended.
pub(crate) fn serve(words: &[String]) -> Outcome {
    let (address, _) = place(words)?;
    let failed = |error: Error| format!("serve {address}: {error}");
    let datagrams = UdpSocket::bind(address).map_err(failed)?;
    // The system's greatest size, so that what waits for a busy receiver is not lost.
    let _ = set_socket_recv_buffer_size(&datagrams, 1 << 20);
    let listener = TcpListener::bind(address).map_err(failed)?;
    std::thread::spawn(move || {
        let mut bytes = [0; DATAGRAM];
        while datagrams.recv(&mut bytes).is_ok() {
            DATAGRAMS.fetch_add(1, Ordering::Relaxed);
        }
    });
    loop {
        let (connection, _) = listener.accept().map_err(failed)?;
        // A caller that has gone is its own affair.
        let _ = answer(connection);
    }
}

fn answer(mut connection: TcpStream) -> Result<(), Error> {
    let mut kind = [0];
    connection.read_exact(&mut kind)?;
    match kind[0] {
        PING_PONG => {
            connection.set_nodelay(true)?;
            let mut byte = [0];
            while connection.read(&mut byte)? != 0 {
                connection.write_all(&byte)?;
            }
        }
        STREAM => {
            let (mut block, before) = (vec![0; BLOCK], processor());
            while connection.read(&mut block)? != 0 {}
            connection.write_all(&(processor() - before).to_le_bytes())?;
        }
        RECEIVED => connection.write_all(&DATAGRAMS.load(Ordering::Relaxed).to_le_bytes())?,
        _ => {}
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "the address is a number")]
fn connect(address: SocketAddr) -> Result<TcpStream, Error> {
    let began = Instant::now();
    loop {
        match TcpStream::connect(address) {
            Err(error)
                if error.kind() == ErrorKind::ConnectionRefused && began.elapsed() < SOON =>
            {
                std::thread::sleep(Duration::from_millis(20));
            }
            done => return done,
        }
    }
}

/// `net-work`.
pub(crate) fn work(words: &[String]) -> Outcome {
    let (address, rest) = place(words)?;
    let [kind, count] = rest else { return Err("a kind and a count".to_owned()) };
    let count: u32 = count.parse().map_err(|_| "the count is not a number")?;
    let done = match kind.as_str() {
        "stream" => stream(address, count),
        "ping-pong" => ping_pong(address, count),
        "connect" => connections(address, count),
        "sendto" => sendto(address, count),
        "datagrams" => datagrams(address, count),
        other => return Err(format!("no work {other}")),
    };
    done.map_err(|error| format!("{kind} {address}: {error}"))
}

fn each(began: Instant, count: u32) {
    println!("{}", began.elapsed().as_secs_f64() * 1e9 / f64::from(count));
}

fn stream(address: SocketAddr, mebibytes: u32) -> Result<(), Error> {
    let mut connection = connect(address)?;
    connection.write_all(&[STREAM])?;
    let (block, before, began) = (vec![7; BLOCK], processor(), Instant::now());
    for _ in 0..(u64::from(mebibytes) << 20) / BLOCK as u64 {
        connection.write_all(&block)?;
    }
    connection.shutdown(std::net::Shutdown::Write)?;
    let mut theirs = [0; 8];
    connection.read_exact(&mut theirs)?;
    let gibibytes = f64::from(mebibytes) / 1024.0;
    let processors = processor() - before + f64::from_le_bytes(theirs);
    println!("{} {}", began.elapsed().as_secs_f64() / gibibytes, processors / gibibytes);
    Ok(())
}

fn ping_pong(address: SocketAddr, count: u32) -> Result<(), Error> {
    let mut connection = connect(address)?;
    connection.set_nodelay(true)?;
    connection.write_all(&[PING_PONG])?;
    let (mut byte, mut began) = ([0], Instant::now());
    for round in 0..=count {
        if round == 1 {
            began = Instant::now();
        }
        connection.write_all(&byte)?;
        connection.read_exact(&mut byte)?;
    }
    each(began, count);
    Ok(())
}

/// The other end accepts and closes; its side of the connection waits, not the caller's.
fn connections(address: SocketAddr, count: u32) -> Result<(), Error> {
    let once = || {
        let mut connection = connect(address)?;
        connection.write_all(&[CONNECT])?;
        connection.read(&mut [0]).map(drop)
    };
    once()?;
    let began = Instant::now();
    for _ in 0..count {
        once()?;
    }
    each(began, count);
    Ok(())
}

/// Of a socket that is not connected, to a receiver that reads.
fn sendto(address: SocketAddr, count: u32) -> Result<(), Error> {
    drop(connect(address)?);
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.send_to(&[0; 32], address)?;
    let began = Instant::now();
    for _ in 0..count {
        socket.send_to(&[0; 32], address)?;
    }
    each(began, count);
    Ok(())
}

/// How many datagrams the other end has received until now.
fn received(address: SocketAddr) -> Result<u64, Error> {
    let mut connection = connect(address)?;
    connection.write_all(&[RECEIVED])?;
    let mut number = [0; 8];
    connection.read_exact(&mut number)?;
    Ok(u64::from_le_bytes(number))
}

/// Sends so many datagrams a second, or as many as it can (0). Prints how many have come each
/// second, and which part was lost, in percent.
fn datagrams(address: SocketAddr, rate: u32) -> Result<(), Error> {
    let before = received(address)?;
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    let (datagram, began, mut sent) = ([7; DATAGRAM], Instant::now(), 0_u32);
    while began.elapsed() < SENDING {
        let due = if rate == 0 {
            sent + 64
        } else {
            std::thread::sleep(PAUSE);
            (began.elapsed().as_secs_f64() * f64::from(rate)) as u32
        };
        while sent < due {
            socket.send_to(&datagram, address)?;
            sent += 1;
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    std::thread::sleep(UNDER_WAY);
    let came = u32::try_from(received(address)? - before).map_or(f64::NAN, f64::from);
    println!("{} {}", came / seconds, (1.0 - came / f64::from(sent)) * 100.0);
    Ok(())
}

/// `net-lookup`: nanoseconds in which the table finds one of 1,000 members and the socket at its
/// port.
pub(crate) fn lookup() -> Outcome {
    const MEMBERS: u16 = 1000;
    const ROUNDS: u32 = 200;
    let memory: Vec<AtomicU64> = (0..SIZE / 8).map(|_| AtomicU64::new(0)).collect();
    let table = Table::create(&memory, Ipv4Addr::new(127, 64, 0, 0)).ok_or("no table")?;
    let address = |number: u16| Ipv4Addr::from_bits(0x645a_0002 + u32::from(number));
    for number in 0..MEMBERS {
        let slot = Slot::new(number).ok_or("no slot")?;
        table.take(slot, u64::from(number) + 1);
        let (network, cluster) = (1, false);
        let membership = Membership { network, address: address(number), prefix: 16, cluster };
        let port = Port {
            protocol: Protocol::Tcp,
            family: Family::V4,
            group: false,
            address: address(number),
            port: 5432,
            real: table.real(slot, Use::Network),
            real_port: 5432,
            cookie: u64::from(number) + 1,
        };
        let joined = table.members().join(slot, membership);
        if !(joined && table.ports().insert(slot, &port, |_| false)) {
            return Err(format!("no room for member {number}"));
        }
    }
    let (began, mut found) = (Instant::now(), 0);
    for _ in 0..ROUNDS {
        for number in 0..MEMBERS {
            let there = table.members().find(1, black_box(address(number)));
            let there = there
                .and_then(|slot| black_box(table.ports().find(slot, Protocol::Tcp, 5432).next()));
            found += u32::from(there.is_some());
        }
    }
    if found != ROUNDS * u32::from(MEMBERS) {
        return Err(format!("only {found} were found"));
    }
    each(began, found);
    Ok(())
}
