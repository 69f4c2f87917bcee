//! The task API: what the runtime asks of a shim, and what the shim tells of its tasks; both are compared with the
//! kernel's signs. Two witnesses that disagree are a note with both values, never a silent choice.

use super::super::Lifecycle;
use super::super::unit::{TaskCall, UnitKey};
use super::{About, id};
use crate::cri::{Field, Fields};
use crate::ids::{MonotonicNs, Tgid};
use crate::record::Exit;

/// Calls that a unit remembers.
const MAX_TASK_CALLS: usize = 16;

/// One call of the task API about a container's init.
#[derive(Clone, Copy, Debug)]
pub(in crate::lifecycle) struct TaskSeen {
    pub(in crate::lifecycle) method: &'static str,
    pub(in crate::lifecycle) call: TaskCall,
    /// The init's pid, as the reply says.
    pub(in crate::lifecycle) pid: Option<Tgid>,
    pub(in crate::lifecycle) exit_status: Option<u64>,
}

impl Lifecycle {
    pub(super) fn task(&mut self, method: &str, at: MonotonicNs, fields: &Fields) -> Option<About> {
        let exec = fields.text(Field::ExecId).is_some_and(|id| !id.is_empty());
        let id = id(fields, Field::TaskId).filter(|_| !exec)?;
        let call = TaskCall { start: at, end: None };
        let (method, key) = match method {
            "Create" => ("Create", self.units.of(&id)),
            "Start" => ("Start", self.units.of(&id)),
            "Wait" => ("Wait", self.units.find(&id)?),
            "Kill" => ("Kill", self.units.find(&id)?),
            "Delete" => ("Delete", self.units.find(&id)?),
            _ => return None,
        };
        let unit = self.units.get_mut(key)?;
        match method {
            "Create" => unit.task_create = unit.task_create.or(Some(call)),
            "Start" => unit.task_start = unit.task_start.or(Some(call)),
            _ => {}
        }
        if unit.tasks.len() >= MAX_TASK_CALLS {
            unit.overflow += 1;
            return None;
        }
        unit.tasks.push(TaskSeen { method, call, pid: None, exit_status: None });
        Some(About::Task(key, unit.tasks.len() - 1))
    }

    pub(super) fn task_replied(&mut self, key: UnitKey, index: usize, at: MonotonicNs, fields: &Fields) {
        let Some(unit) = self.units.get_mut(key) else { return };
        let Some(task) = unit.tasks.get_mut(index) else { return };
        task.pid = pid(fields);
        task.exit_status = match task.method {
            // What proto3 leaves out is 0.
            "Wait" | "Delete" => Some(fields.number(Field::ExitStatus).unwrap_or(0)),
            _ => None,
        };
        match (task.method, task.exit_status) {
            ("Create", _) => unit.init_told = unit.init_told.or(task.pid),
            ("Wait", Some(status)) => unit.told_exit = unit.told_exit.or(Some((at, status))),
            _ => {}
        }
        self.cross_check(key);
    }

    pub(super) fn task_ended(&mut self, key: UnitKey, index: usize, at: MonotonicNs) {
        let Some(unit) = self.units.get_mut(key) else { return };
        let Some(task) = unit.tasks.get_mut(index) else { return };
        task.call.end = task.call.end.or(Some(at));
        let first = match task.method {
            "Create" => unit.task_create.as_mut(),
            "Start" => unit.task_start.as_mut(),
            _ => None,
        };
        // Only the call that the first one is: a second one has another start.
        if let Some(first) = first.filter(|first| first.start == task.call.start) {
            first.end = first.end.or(Some(at));
        }
    }

    /// `Events/Forward`: a shim tells the runtime.
    pub(super) fn task_event(&mut self, at: MonotonicNs, fields: &Fields) {
        let Some(key) = id(fields, Field::TaskId).and_then(|id| self.units.find(&id)) else { return };
        let Some(unit) = self.units.get_mut(key) else { return };
        // An exec's events name it; those of init carry the container's own id, or none.
        let of_init = fields.text(Field::ExecId).is_none_or(|exec| exec.is_empty() || exec == unit.id.as_str());
        match fields.text(Field::Topic) {
            Some("/tasks/create" | "/tasks/start") => unit.event_pid = pid(fields).or(unit.event_pid),
            Some("/tasks/exit") if of_init => {
                unit.told_exit = unit.told_exit.or(Some((at, fields.number(Field::ExitStatus).unwrap_or(0))));
            }
            Some("/tasks/oom") => {
                unit.told_oom = true;
                self.life.told_oom(at, key);
            }
            _ => return,
        }
        self.cross_check(key);
    }

    /// Compares what the shim says of a container with what the kernel says.
    pub(in crate::lifecycle) fn cross_check(&mut self, key: UnitKey) {
        let Some(unit) = self.units.get(key) else { return };
        let Some(start) = unit.start.and_then(|key| self.starts.get_mut(&key)) else { return };
        let origin = start.origin();
        let mut note = |text: String| {
            start.notes.insert(text);
        };
        let told = [unit.init_told, unit.event_pid];
        for told in told.into_iter().flatten().filter(|told| unit.init_seen.is_some_and(|seen| seen != *told)) {
            let seen = unit.init_seen.unwrap_or_default();
            note(format!("init_pid_disagrees: kernel {seen}, shim {told}"));
        }
        if let (Some(entry), Some(asked)) = (unit.entered(), unit.task_start)
            && entry.at < asked.start
        {
            let (seen, asked) = (entry.at.since(origin), asked.start.since(origin));
            note(format!("exec_order_disagrees: kernel exec at {seen} ns, shim asked to start at {asked} ns"));
        }
        if let (Some((at, exit)), Some((told_at, told))) = (&unit.exit, unit.told_exit) {
            let seen = status_of(exit);
            if seen.is_some_and(|seen| seen != told) {
                note(format!("exit_status_disagrees: kernel {}, shim {told}", seen.unwrap_or_default()));
            }
            if told_at < *at {
                let (seen, told) = (at.since(origin), told_at.since(origin));
                note(format!("exit_order_disagrees: kernel at {seen} ns, shim at {told} ns"));
            }
        }
        // The kernel's victim may be a process of the container that nobody follows, or its record was lost.
        let whole = !self.stray_oom && self.losses.records == start.losses.records;
        if unit.told_oom && !unit.oom && whole {
            start.notes.insert("oom_disagrees: kernel no, shim yes".to_owned());
        }
    }
}

fn pid(fields: &Fields) -> Option<Tgid> {
    let pid = fields.number(Field::Pid).and_then(|pid| u32::try_from(pid).ok());
    pid.filter(|pid| *pid != 0).map(Tgid)
}

/// An exit as shims report it: the status, or 128 and the signal.
fn status_of(exit: &Exit) -> Option<u64> {
    exit.status.map(u64::from).or(exit.signal.map(|signal| 128 + u64::from(signal)))
}
