//! `execve`: the guest executes Coracle's loader, with instructions about what to load. See
//! [`abi::boot`].

use super::backend::TracerHost;
use super::scratch::Scratch;
use super::tracee::{Executing, Held, Pending};
use super::tracer::Tracer;
use abi::boot::BOOT_ROOM;
use abi::calls::{Arch, Op};
use view::exec::Machine;
use view::guest::Guest as _;
use view::{After, Call, Errno, HostFd, Task, Text};

/// The path by which another process opens a file that we hold.
fn ours(file: HostFd) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), file.0)
}

impl<H: TracerHost> Tracer<'_, H> {
    /// Carries out the plan that the view has left in the buffers. `before` is the thread's state
    /// as it was, if the kernel refuses.
    pub(super) fn execute(&mut self, held: Held, mut scratch: Scratch, before: Option<Box<Task>>) {
        let Held { stopped, call, .. } = held;
        let mut block = [0; BOOT_ROOM];
        let plan = &mut self.buffers.exec;
        // By descriptor rather than by path: a process that waits for the `execve` may delete the
        // file before the loader opens it.
        let name = |file: Option<HostFd>, host: &Text| match file {
            Some(file) => ours(file).into_bytes(),
            None => host.as_bytes().to_vec(),
        };
        let program = name(plan.program, &plan.program_host);
        let interpreter = name(plan.interpreter, &plan.interpreter_host);
        let length = plan.boot(&program, &interpreter, &mut block);
        let files = [plan.program.take(), plan.interpreter.take()];
        let (arguments, environment) = (plan.arguments, plan.environment);
        let (path, inode) = (plan.program_guest, plan.inode);
        let block_at = plan.boot_at();
        let loader = match plan.machine {
            Machine::X86_64 => self.settings.loader.clone(),
            Machine::I386 => self.settings.loader_i386.clone(),
        };
        let after = self.tracees.get(&stopped.id()).and_then(|tracee| tracee.task.clone());
        if let (Some(tracee), Some(before)) = (self.tracees.get_mut(&stopped.id()), before) {
            tracee.task = Some(before);
        }
        let place = self.ask(&stopped, &mut scratch, |context| {
            context.backend.scratch(loader.as_bytes_with_nul(), 1)
        });
        let number = Arch::from_audit(call.arch).and_then(|arch| Op::Execve.entry().number(arch));
        let (Ok(length), Some(task), Some(Ok(at)), Some(number)) = (length, after, place, number)
        else {
            self.close_all(files);
            self.chunks &= !scratch.chunks;
            return self.done(stopped, Errno::ENOMEM.result());
        };
        let block = block[..length].to_vec();
        let executing = Executing { block, block_at, task, program: path, inode, files };
        // What comes behind them means nothing to the kernel.
        let [_, _, _, more @ ..] = call.arguments;
        let all = [at, arguments, environment, more[0], more[1], more[2]];
        let pending = Pending {
            call,
            made: Call { number, arguments: all, ..call },
            chunks: scratch.chunks,
            after: After::Nothing,
            exec: Some(Box::new(executing)),
        };
        self.watch(stopped, pending);
    }
}
