//! The ids that processes believe to have: the rules of credentials(7), setuid(2), setresuid(2),
//! setfsuid(2), setgroups(2).

use rustix::io::Errno;

/// Ids of a process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Identity {
    /// Real, effective, saved, file system user.
    pub(super) user: [u32; 4],
    /// Real, effective, saved, file system group.
    pub(super) group: [u32; 4],
    /// Supplementary groups; `None` until somebody set them: then the kernel's answer holds.
    pub(super) groups: Option<Vec<u32>>,
    /// `PR_SET_KEEPCAPS`: the capabilities outlast a change of the user, so that the groups can be
    /// changed after it (`setpriv`). Really they last until `execve`; here, where that is not seen,
    /// for one change of the group and one of the supplementary groups.
    pub(super) keeps: [bool; 2],
}

const REAL: usize = 0;
const EFFECTIVE: usize = 1;
const SAVED: usize = 2;
const FILES: usize = 3;

/// "Leave as it is".
const KEEP: u32 = u32::MAX;

impl Identity {
    /// Effective user 0: may become anybody.
    pub(super) fn is_root(&self) -> bool {
        self.user[EFFECTIVE] == 0
    }

    /// Has the ids of a process that never changed them.
    pub(super) fn is_plain(&self) -> bool {
        Self { groups: None, ..self.clone() } == Self::default()
    }

    /// May change these ids to any others. Asked once for each change.
    fn may_change(&mut self, user: bool) -> bool {
        let root = self.is_root();
        root || (!user && std::mem::take(&mut self.keeps[0]))
    }

    fn ids(&mut self, user: bool) -> &mut [u32; 4] {
        if user { &mut self.user } else { &mut self.group }
    }

    /// `setuid`, `setgid`.
    pub(super) fn set(&mut self, user: bool, id: u32) -> Result<(), Errno> {
        let root = self.may_change(user);
        let ids = self.ids(user);
        if id == KEEP {
            return Err(Errno::INVAL);
        }
        if root {
            *ids = [id; 4];
        } else if id == ids[REAL] || id == ids[SAVED] {
            ids[EFFECTIVE] = id;
            ids[FILES] = id;
        } else {
            return Err(Errno::PERM);
        }
        Ok(())
    }

    /// `setreuid`, `setregid`.
    pub(super) fn set_two(&mut self, user: bool, real: u32, effective: u32) -> Result<(), Errno> {
        let root = self.may_change(user);
        let ids = self.ids(user);
        let old = *ids;
        if !root {
            let real_allowed = real == KEEP || real == old[REAL] || real == old[EFFECTIVE];
            let effective_allowed = effective == KEEP || old[..3].contains(&effective);
            if !real_allowed || !effective_allowed {
                return Err(Errno::PERM);
            }
        }
        if real != KEEP {
            ids[REAL] = real;
        }
        if effective != KEEP {
            ids[EFFECTIVE] = effective;
        }
        if real != KEEP || (effective != KEEP && effective != old[REAL]) {
            ids[SAVED] = ids[EFFECTIVE];
        }
        ids[FILES] = ids[EFFECTIVE];
        Ok(())
    }

    /// `setresuid`, `setresgid`.
    pub(super) fn set_three(&mut self, user: bool, new: [u32; 3]) -> Result<(), Errno> {
        let root = self.may_change(user);
        let ids = self.ids(user);
        let old = *ids;
        if !root && new.iter().any(|id| *id != KEEP && !old[..3].contains(id)) {
            return Err(Errno::PERM);
        }
        for (slot, id) in ids.iter_mut().zip(new) {
            if id != KEEP {
                *slot = id;
            }
        }
        ids[FILES] = ids[EFFECTIVE];
        Ok(())
    }

    /// `setfsuid`, `setfsgid`: gives the old one, whether it changed or not.
    pub(super) fn set_files(&mut self, user: bool, id: u32) -> u32 {
        let root = self.is_root();
        let ids = self.ids(user);
        let old = ids[FILES];
        if id != KEEP && (root || ids.contains(&id)) {
            ids[FILES] = id;
        }
        old
    }

    /// `setgroups`.
    pub(super) fn set_groups(&mut self, groups: Vec<u32>) -> Result<(), Errno> {
        if !self.is_root() && !std::mem::take(&mut self.keeps[1]) {
            return Err(Errno::PERM);
        }
        self.groups = Some(groups);
        Ok(())
    }

    /// Whether `chown` to these ids (`u32::MAX`: leave) is allowed for a file that belongs to
    /// `owner`.
    pub(super) fn may_chown(&self, owner: (u32, u32), to: (u32, u32)) -> bool {
        if self.is_root() {
            return true;
        }
        let mine = self.user[FILES] == owner.0;
        let user_stays = to.0 == KEEP || to.0 == owner.0;
        let in_group = |group: u32| {
            group == self.group[FILES]
                || self.groups.as_ref().is_some_and(|groups| groups.contains(&group))
        };
        let group_fine = to.1 == KEEP || (mine && (to.1 == owner.1 || in_group(to.1)));
        let nothing = to.0 == KEEP && to.1 == KEEP;
        nothing || (mine && user_stays && group_fine)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropping_is_for_good() {
        let mut apt = Identity::default();
        apt.set_groups(vec![65_534]).unwrap();
        apt.set_three(false, [65_534; 3]).unwrap();
        apt.set_three(true, [42; 3]).unwrap();
        assert_eq!((apt.user, apt.group), ([42; 4], [65_534; 4]));
        assert_eq!(apt.set(true, 0), Err(Errno::PERM));
        assert_eq!(apt.set(false, 0), Err(Errno::PERM));
        assert_eq!(apt.set_two(true, KEEP, 0), Err(Errno::PERM));
        assert_eq!(apt.set_three(true, [0, KEEP, KEEP]), Err(Errno::PERM));
        assert_eq!(apt.set_groups(vec![]), Err(Errno::PERM));
        assert_eq!(apt.set(true, 42), Ok(()));
    }

    #[test]
    fn an_effective_id_comes_back_from_the_saved_one() {
        let mut process = Identity::default();
        process.set_three(true, [KEEP, 1000, KEEP]).unwrap();
        assert_eq!(process.user, [0, 1000, 0, 1000]);
        assert_eq!(process.set_two(true, 7, KEEP), Err(Errno::PERM));
        process.set_two(true, KEEP, 0).unwrap();
        assert_eq!(process.user, [0, 0, 0, 0]);
    }

    #[test]
    fn kept_capabilities_change_the_group_once() {
        let mut process = Identity { keeps: [true; 2], ..Identity::default() };
        process.set_three(true, [33; 3]).unwrap();
        process.set_three(false, [33; 3]).unwrap();
        process.set_groups(vec![]).unwrap();
        assert_eq!((process.user, process.group), ([33; 4], [33; 4]));
        assert_eq!(process.set_groups(vec![0]), Err(Errno::PERM));
        assert_eq!(process.set(false, 0), Err(Errno::PERM));
        assert_eq!(process.set(true, 0), Err(Errno::PERM));
    }

    #[test]
    fn setreuid_moves_the_saved_id() {
        let mut process = Identity::default();
        process.set_two(true, 5, 6).unwrap();
        assert_eq!(process.user, [5, 6, 6, 6]);
        process.set_two(true, KEEP, 5).unwrap();
        // The effective id is the old real one, so the saved id stays.
        assert_eq!(process.user, [5, 5, 6, 5]);
    }

    #[test]
    fn file_system_ids_are_told_either_way() {
        let mut process = Identity::default();
        assert_eq!(process.set_files(true, 9), 0);
        assert_eq!(process.set_files(true, KEEP), 9);
        process.set(true, 3).unwrap();
        assert_eq!(process.set_files(true, 0), 3);
        assert_eq!(process.user[FILES], 3);
    }

    #[test]
    fn owners_may_give_to_their_groups_only() {
        let mut process = Identity::default();
        assert!(process.may_chown((0, 0), (5, 5)));
        process.set_groups(vec![7]).unwrap();
        process.set(false, 4).unwrap();
        process.set(true, 3).unwrap();
        assert!(process.may_chown((3, 4), (KEEP, 7)));
        assert!(!process.may_chown((3, 4), (KEEP, 8)));
        assert!(!process.may_chown((0, 0), (3, 3)));
        assert!(process.may_chown((0, 0), (KEEP, KEEP)));
    }
}
