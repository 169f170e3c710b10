//! Has the view decide about the `execve` of the first program, as about every later one, in a
//! process that can still report an error.

use super::memory::Memory;
use crate::engines::interpose::delegate::{DynBackend, delegate_to_host};
use crate::engines::interpose::host::HostCalls;
use abi::calls::{Arch, Op};
use std::ffi::CString;
use view::errno::Result;
use view::exec::ExecPlan;
use view::guest::{Guest, Host, Sockets};
use view::{Call, CallBuffers, CallContext, Errno, Task, Text, Verdict, World};

/// The engine's own process, in the place of a guest that executes its first program.
pub(super) struct Caller {
    host: HostCalls,
    memory: Memory,
    buffers: Box<CallBuffers>,
}

/// What is to be executed.
pub(super) struct Program {
    /// The view's plan. Its files are open in this process.
    pub(super) plan: ExecPlan,
    /// The arguments, after scripts have put theirs in front.
    pub(super) arguments: Vec<CString>,
    /// The thread, as it will be.
    pub(super) task: Task,
}

impl Caller {
    pub(super) fn new(mut host: HostCalls) -> Self {
        host.serve(std::process::id());
        Self { host, memory: Memory::default(), buffers: Box::new(CallBuffers::EMPTY) }
    }

    /// Decides `execve(path, arguments, ...)`.
    pub(super) fn plan(
        &mut self,
        world: &World<'_>,
        before: &Task,
        path: &CString,
        arguments: &[String],
    ) -> Result<Program> {
        let path = self.memory.put(path.as_bytes_with_nul().to_vec());
        let list = self.memory.put_list(arguments);
        let mut task = before.clone();
        match self.decide(world, &mut task, Op::Execve, [path, list, 0, 0, 0, 0]) {
            Verdict::Exec => {
                let plan = std::mem::replace(&mut self.buffers.exec, ExecPlan::EMPTY);
                let arguments = self.memory.list(plan.arguments)?;
                Ok(Program { plan, arguments, task })
            }
            Verdict::Done(result) => Err(error_of(result)),
            // Nothing else comes of an `execve`.
            _ => Err(Errno::ENOSYS),
        }
    }

    /// Whether the guest would find a file there.
    pub(super) fn exists(&mut self, world: &World<'_>, task: &Task, path: &CString) -> bool {
        let path = self.memory.put(path.as_bytes_with_nul().to_vec());
        let mut task = task.clone();
        let verdict = self.decide(world, &mut task, Op::Access, [path, 0, 0, 0, 0, 0]);
        !matches!(verdict, Verdict::Done(result) if result < 0)
    }

    fn decide(
        &mut self,
        world: &World<'_>,
        task: &mut Task,
        op: Op,
        arguments: [u64; 6],
    ) -> Verdict {
        let arch = Arch::X86_64;
        let Some(number) = op.entry().number(arch) else {
            return Verdict::Done(Errno::ENOSYS.result());
        };
        let call = Call { arch: arch.audit(), number, arguments };
        let mut backend = Backend { host: &mut self.host, memory: &mut self.memory };
        let mut lent = DynBackend::new(&mut backend);
        let mut context =
            CallContext { backend: &mut lent, world, task, buffers: &mut self.buffers };
        view::calls::enter(&mut context, &call)
    }

    /// The host, for closing what the plan holds.
    pub(super) fn host(&mut self) -> &mut HostCalls {
        &mut self.host
    }
}

fn error_of(result: i64) -> Errno {
    u16::try_from(-result).map_or(Errno::EIO, Errno)
}

/// What the view works with.
struct Backend<'a> {
    host: &'a mut HostCalls,
    memory: &'a mut Memory,
}

impl Guest for Backend<'_> {
    fn read(&mut self, at: u64, into: &mut [u8]) -> Result<()> {
        self.memory.read(at, into)
    }

    fn read_some(&mut self, at: u64, into: &mut [u8]) -> Result<usize> {
        self.memory.read_some(at, into)
    }

    fn write(&mut self, at: u64, from: &[u8]) -> Result<()> {
        self.memory.write(at, from)
    }

    fn scratch(&mut self, bytes: &[u8], _align: usize) -> Result<u64> {
        self.memory.scratch(bytes.to_vec())
    }

    fn scratch_room(&mut self, length: usize, _align: usize) -> Result<u64> {
        self.memory.scratch(vec![0; length])
    }

    fn read_text(&mut self, at: u64, into: &mut Text) -> Result<()> {
        self.memory.read_text(at, into)
    }
}

impl Host for Backend<'_> {
    delegate_to_host!();

    fn pid(&self) -> u32 {
        self.host.pid()
    }

    fn tid(&self) -> u32 {
        self.host.tid()
    }

    fn program_of(&mut self, pid: u32, into: &mut Text) -> bool {
        self.host.program_of(pid, into)
    }

    fn is_executed(&mut self, device: (u32, u32), inode: u64) -> bool {
        self.host.is_executed(device, inode)
    }
}

/// Before there is a program, there is no socket.
impl Sockets for Backend<'_> {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engines::interpose::prepare::{Files, Prepared};
    use crate::engines::interpose::run::parts;
    use crate::engines::interpose::world::{Bound, Compiled};
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;
    use view::identity::{Credentials, Groups};
    use view::world::Kind;

    fn prepared(place: &Path) -> Prepared {
        let root = place.join("ROOT");
        std::fs::create_dir_all(root.join("bin")).unwrap();
        std::fs::create_dir_all(place.join("run")).unwrap();
        testkit::command::copy_program(Path::new("/bin/true"), &root.join("bin/program"));
        let script = root.join("bin/script");
        std::fs::write(&script, "#!/bin/program -x\n").unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        let bound = Bound {
            guest: b"/".to_vec(),
            host: root.as_os_str().as_bytes().to_vec(),
            read_only: false,
            kind: Kind::Tree,
        };
        let world = Compiled::new(vec![bound], None);
        let files = Files::of(place, root.clone());
        Prepared { world, files, cwd: root, entered: 0, layers: None, networks: None }
    }

    #[test]
    fn a_script_is_planned_as_its_interpreter() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().canonicalize().unwrap();
        let prepared = prepared(&place);
        // What the program's interpreter is called.
        let loader = place.join("ROOT/lib64/ld-linux-x86-64.so.2");
        std::fs::create_dir_all(loader.parent().unwrap()).unwrap();
        std::fs::copy("/lib64/ld-linux-x86-64.so.2", &loader).unwrap();
        let mut caller = Caller::new(HostCalls::new(parts(&prepared).unwrap()));
        let bindings = prepared.world.bindings();
        let world = World::new(&bindings, None, &[]);
        let task = Task::new(Credentials::new(0, 0, Groups::new([]).unwrap()), 0o22);
        let words = ["script", "one"].map(str::to_owned);
        // A child of another test, between its `fork` and its `execve`, may still have open what
        // was written here.
        let program = loop {
            match caller.plan(&world, &task, &c"/bin/script".to_owned(), &words) {
                Err(Errno::ETXTBSY) => std::thread::yield_now(),
                planned => break planned.unwrap(),
            }
        };
        let told: Vec<_> = program.arguments.iter().map(|word| word.to_str().unwrap()).collect();
        assert_eq!(told, ["/bin/program", "-x", "/bin/script", "one"]);
        assert_eq!(program.plan.program_guest.as_bytes(), b"/bin/program");
        assert!(program.plan.interpreter.is_some());
        let mut plan = program.plan;
        plan.release(caller.host());
        let missing = caller.plan(&world, &task, &c"/bin/none".to_owned(), &words);
        assert_eq!(missing.err(), Some(Errno::ENOENT));
        assert!(caller.exists(&world, &task, &c"/bin/script".to_owned()));
        assert!(!caller.exists(&world, &task, &c"/etc".to_owned()));
    }
}
