//! Options of sockets that name an address, or say what a socket serves.

use super::shown::{Role, is_only_six, shown};
use super::{LONGEST, Network, spell, with_socket};
use crate::CallContext;
use crate::errno::{Errno, Result};
use crate::guest::Backend;
use crate::verdict::Verdict;

const SOL_SOCKET: u32 = 1;
const SO_PEERNAME: u32 = 28;
const IPPROTO_IPV6: u32 = 41;
const IPV6_V6ONLY: u32 = 26;

/// `getsockopt`, where the kernel has something else than the guest; `None` elsewhere.
pub(in crate::sockets) fn option<N: Backend>(
    context: &mut CallContext<'_, N>,
    network: Network<'_>,
    arguments: &[u64; 6],
) -> Result<Option<Verdict>> {
    let [descriptor, level, name, value, length, _] = *arguments;
    let mut answer = [0; LONGEST];
    let whole = match (level as u32, name as u32) {
        (SOL_SOCKET, SO_PEERNAME) => {
            let name = with_socket(context, descriptor, |context, socket| {
                context.backend.socket_name(socket.fd, true)
            });
            let Some(real) = name.ok().flatten() else { return Ok(None) };
            let seen = shown(context, network, (descriptor, Role::Other), real);
            let Some(seen) = seen else { return Ok(None) };
            spell(seen, &mut answer)
        }
        (IPPROTO_IPV6, IPV6_V6ONLY) => {
            let only = with_socket(context, descriptor, |context, socket| {
                is_only_six(context, network, socket)
            });
            if only != Ok(Some(true)) {
                return Ok(None);
            }
            answer[0] = 1;
            size_of::<u32>()
        }
        _ => return Ok(None),
    };
    // As the kernel does it (`sk_getsockopt`, `do_ipv6_getsockopt`): room for more than there is of
    // a name is an error.
    let mut room = [0; 4];
    context.backend.read(length, &mut room)?;
    let room = u32::from_le_bytes(room) as usize;
    if level as u32 == SOL_SOCKET && room > whole {
        return Err(Errno::EINVAL);
    }
    let room = room.min(whole);
    context.backend.write(value, &answer[..room])?;
    context.backend.write(length, &(room as u32).to_le_bytes())?;
    Ok(Some(Verdict::Done(0)))
}
