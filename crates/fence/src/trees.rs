//! What is seen of the machine's files: each bind is opened as a mount of its own, detached, before the fence is
//! entered.
//!
//! Promises: P1, P2, P5 (the object counts: paths are resolved once, then opened without following any link), P13.
//! Trust: the plan is the daemon's; folders under a writable bind may hold links that an agent planted, so that the
//! next fence shows what they point to. Such links are not followed.
//! As root, what the owner owns is handed over by an idmapped mount, so that files made inside belong to the owner.
//! See: open_tree(2), mount_setattr(2), openat2(2).

use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use bailiwick_gate::{Bind, BindMode, FencePlan, LaunchFault};
use bailiwick_model::AbsPath;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat, openat2, readlinkat, statat};
use rustix::io::Errno;
use rustix::mount::{MountAttrFlags, OpenTreeFlags, open_tree};
use rustix::process::geteuid;

use crate::ask::Aim;
use crate::fault::{Says, failed, hint};
use crate::order::below;
use crate::{identity, sys};

/// Most links on the way to one place, as in the kernel.
const MAX_LINKS: usize = 40;

/// A tree of the machine, detached, with its flags set.
#[derive(Debug)]
pub(crate) struct Tree {
    /// Where it lies outside.
    pub source: AbsPath,
    /// Where it will be seen inside.
    pub target: AbsPath,
    /// What may be done there.
    pub mode: BindMode,
    /// The detached mount; the place itself where nothing is mounted.
    pub mount: OwnedFd,
    /// True for a folder.
    pub folder: bool,
    /// True when the person keeps files there, and not the system or the context: then it is searched for what is
    /// protected anywhere.
    pub personal: bool,
}

/// A link of the machine that is made anew inside.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Link {
    /// Where it stands.
    pub at: PathBuf,
    /// What it says.
    pub text: PathBuf,
}

/// All that is seen of the machine's files.
#[derive(Debug, Default)]
pub(crate) struct Trees {
    /// The trees.
    pub trees: Vec<Tree>,
    /// The links on the way to them.
    pub links: Vec<Link>,
    /// Optional sources that are not there.
    pub missing: Vec<AbsPath>,
    /// What the person should know.
    pub warnings: Vec<String>,
    /// Where the trees are seen that are asked about file by file.
    pub asked: Vec<AbsPath>,
}

impl Trees {
    /// Finds every bind of a plan where it lies, for a fence that mounts nothing.
    pub(crate) fn find(plan: &FencePlan) -> Result<Self, LaunchFault> {
        Self::all(plan, |aim| aim.place.try_clone().or_say(|| aim.what()))
    }

    /// Opens every bind of a plan. As root this is done before the privileges are given up; else in the new
    /// namespaces. `owners` is the user namespace that hands over what the owner owns, where it has been made already.
    pub(crate) fn open(plan: &FencePlan, mut owners: Option<OwnedFd>) -> Result<Self, LaunchFault> {
        Self::all(plan, |aim| {
            let own = plan.identity.owner.filter(|_| aim.bind.own);
            if let (Some(owner), None) = (own, &owners) {
                owners = Some(identity::namespace_of_owners(owner, plan.identity.outside)?);
            }
            let owners = owners.as_ref().filter(|_| own.is_some()).map(OwnedFd::as_fd);
            detached(aim.bind, &aim.target, &aim.place, owners)
        })
    }

    fn all(
        plan: &FencePlan,
        mut show: impl FnMut(&Goal<'_>) -> Result<OwnedFd, LaunchFault>,
    ) -> Result<Self, LaunchFault> {
        let mut all = Self::default();
        let mut binds: Vec<&Bind> = plan.binds.iter().collect();
        // Writable roots first, shallow ones first: links inside them are not followed by what comes after.
        binds.sort_by_key(|bind| (bind.mode == BindMode::Read, bind.source.segments().count()));
        let mut writable: Vec<PathBuf> = Vec::new();
        let mut aims: Vec<Goal<'_>> = Vec::new();
        for bind in binds {
            let found = match find(bind, &writable) {
                Ok(found) => found,
                Err(Lost::Missing) if bind.optional => {
                    all.missing.push(bind.source.clone());
                    continue;
                }
                Err(Lost::Planted(link)) if bind.optional => {
                    all.warnings.push(format!(
                        "`{}` is left out: `{}` is a link inside a writable tree",
                        bind.source.as_str(),
                        link.display()
                    ));
                    all.missing.push(bind.source.clone());
                    continue;
                }
                Err(lost) => return Err(lost.fault(&bind.source)),
            };
            if bind.mode == BindMode::Write {
                writable.push(found.path.clone());
            }
            let same = bind.source == bind.target;
            if same {
                let new = found
                    .links
                    .into_iter()
                    .filter(|link| !all.links.contains(link))
                    .collect::<Vec<_>>();
                all.links.extend(new);
            }
            let what = || format!("cannot show `{}` inside", bind.source.as_str());
            let source = AbsPath::new(&found.path).map_err(|fault| failed(what(), fault.to_string()))?;
            aims.push(Goal {
                target: if same { source.clone() } else { bind.target.clone() },
                source,
                bind,
                place: found.place,
                stat: found.stat,
            });
        }
        // Before they are opened: a detached mount that is never used makes the kernel wait when it is closed.
        drop_shown_twice(&mut aims, &plan.scratch);
        for aim in aims {
            let mode = aim.bind.mode;
            all.trees.push(Tree {
                mount: show(&aim)?,
                personal: aim.bind.source == aim.bind.target
                    && (mode == BindMode::Write || aim.bind.own || aim.stat.st_uid == own_user(plan)),
                folder: FileType::from_raw_mode(aim.stat.st_mode).is_dir(),
                target: aim.target,
                source: aim.source,
                mode,
            });
        }
        Ok(all)
    }

    /// Finds the trees that are asked about, before the namespaces are made. As root each is a mount that hands it over;
    /// what is not there, or is a link, is left out.
    pub(crate) fn asked(plan: &FencePlan, mut owners: Option<OwnedFd>) -> Result<Vec<Aim>, LaunchFault> {
        let writable = plan.binds.iter().filter(|bind| bind.mode == BindMode::Write);
        let writable: Vec<PathBuf> = writable.map(|bind| bind.source.to_path_buf()).collect();
        let mut aims = Vec::new();
        for place in &plan.asked {
            let bind = Bind {
                source: place.clone(),
                target: place.clone(),
                mode: BindMode::Write,
                own: plan.identity.owner.is_some(),
                optional: true,
            };
            let found = match find(&bind, &writable) {
                Ok(found) if found.links.is_empty() => found,
                Ok(_) | Err(Lost::Missing | Lost::Planted(_)) => continue,
                Err(lost) => return Err(lost.fault(place)),
            };
            let root = match plan.identity.owner {
                None => found.place,
                Some(owner) => {
                    if owners.is_none() {
                        owners = Some(identity::namespace_of_owners(owner, plan.identity.outside)?);
                    }
                    detached(&bind, place, &found.place, owners.as_ref().map(OwnedFd::as_fd))?
                }
            };
            aims.push(Aim {
                place: place.clone(),
                root,
                folder: FileType::from_raw_mode(found.stat.st_mode).is_dir(),
                absent: false,
            });
        }
        // It is a courtesy: where it cannot be had, the home is as silent as before.
        aims.extend(
            plan.sought
                .as_ref()
                .and_then(|sought| Self::home(plan, &sought.home, owners)),
        );
        Ok(aims)
    }

    /// The person's own home, of which nothing is shown.
    fn home(plan: &FencePlan, home: &AbsPath, owners: Option<OwnedFd>) -> Option<Aim> {
        let place = open_exactly(&home.to_path_buf()).ok()?;
        let root = match plan.identity.owner {
            None => place,
            Some(owner) => {
                let owners = owners.or_else(|| identity::namespace_of_owners(owner, plan.identity.outside).ok())?;
                let flags =
                    OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
                let mount = open_tree(&place, c"", flags).ok()?;
                sys::map_owners(&mount, owners).ok()?;
                mount
            }
        };
        Some(Aim {
            place: home.clone(),
            root,
            folder: true,
            absent: true,
        })
    }

    /// True when an idmapped mount hands over what the owner owns.
    pub(crate) fn hands_over(plan: &FencePlan) -> bool {
        plan.identity.owner.is_some() && plan.binds.iter().any(|bind| bind.own)
    }
}

/// A bind whose place has been found.
struct Goal<'a> {
    bind: &'a Bind,
    source: AbsPath,
    target: AbsPath,
    place: OwnedFd,
    stat: Stat,
}

impl Goal<'_> {
    fn what(&self) -> String {
        format!("cannot show `{}` inside", self.bind.source.as_str())
    }
}

/// Drops what the tree above shows in the same way: what a link like `/bin` leads to, under `/usr`.
fn drop_shown_twice(aims: &mut Vec<Goal<'_>>, scratch: &[AbsPath]) {
    let shown = |aim: &Goal<'_>| (aim.bind.mode, aim.bind.own);
    let known: Vec<_> = aims
        .iter()
        .map(|aim| (aim.target.clone(), aim.source.clone(), shown(aim)))
        .collect();
    aims.retain(|aim| {
        let above = known
            .iter()
            .filter(|(target, ..)| *target != aim.target && target.holds(&aim.target));
        let Some((top, source, how)) = above.max_by_key(|(target, ..)| target.as_str().len()) else {
            return true;
        };
        let between = scratch.iter().any(|path| top.holds(path) && path.holds(&aim.target));
        aim.source != aim.target || source != top || *how != shown(aim) || between
    });
}

fn own_user(plan: &FencePlan) -> u32 {
    let own = geteuid().as_raw();
    if own == 0 { plan.identity.outside.0 } else { own }
}

/// A clone of what lies at `place`, not mounted anywhere yet, with the flags of its bind.
fn detached(
    bind: &Bind,
    target: &AbsPath,
    place: &OwnedFd,
    owners: Option<std::os::fd::BorrowedFd<'_>>,
) -> Result<OwnedFd, LaunchFault> {
    let say = || format!("cannot show `{}` inside", bind.source.as_str());
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::AT_RECURSIVE;
    let mount = open_tree(place, c"", flags).or_say(say)?;
    let mut wanted = MountAttrFlags::MOUNT_ATTR_NOSUID;
    if bind.mode == BindMode::Read {
        wanted |= MountAttrFlags::MOUNT_ATTR_RDONLY;
    }
    if !below(target.as_str(), "/dev") {
        wanted |= MountAttrFlags::MOUNT_ATTR_NODEV;
    }
    sys::add_mount_flags(&mount, wanted, true).or_say(say)?;
    if let Some(owners) = owners {
        let mapped = sys::map_owners(&mount, owners).or_say(|| {
            let source = bind.source.as_str();
            format!("cannot hand `{source}` over to the unprivileged user of the fence")
        });
        hint(
            mapped,
            "its file system, or one mounted below it, takes no idmapped mounts: run bailiwick as an ordinary user",
        )?;
    }
    Ok(mount)
}

/// What a path leads to.
struct Found {
    path: PathBuf,
    links: Vec<Link>,
    place: OwnedFd,
    stat: Stat,
}

/// Why a path leads to nothing that may be shown.
enum Lost {
    Missing,
    Planted(PathBuf),
    Refused(Errno),
}

impl Lost {
    fn fault(self, source: &AbsPath) -> LaunchFault {
        let what = format!("cannot show `{}` inside", source.as_str());
        match self {
            Self::Missing => failed(what, "it does not exist"),
            Self::Planted(link) => failed(what, format!("`{}` is a link inside a writable tree", link.display())),
            Self::Refused(errno) => failed(what, crate::fault::cause(errno)),
        }
    }
}

impl From<Errno> for Lost {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::NOENT | Errno::NOTDIR => Self::Missing,
            other => Self::Refused(other),
        }
    }
}

fn open_exactly(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)
}

fn find(bind: &Bind, writable: &[PathBuf]) -> Result<Found, Lost> {
    let path = bind.source.to_path_buf();
    let (path, links, place) = match open_exactly(&path) {
        Ok(place) => (path, Vec::new(), place),
        Err(Errno::LOOP) => {
            let (path, links) = follow(&path, writable)?;
            let place = open_exactly(&path)?;
            (path, links, place)
        }
        Err(errno) => return Err(errno.into()),
    };
    let stat = statat(&place, c"", AtFlags::EMPTY_PATH)?;
    Ok(Found {
        path,
        links,
        place,
        stat,
    })
}

/// Follows the links of a path, step by step: where it ends, and which links stood on the way.
fn follow(path: &Path, writable: &[PathBuf]) -> Result<(PathBuf, Vec<Link>), Lost> {
    let mut ahead: Vec<OsString> = steps(path);
    let mut here = PathBuf::from("/");
    let mut links = Vec::new();
    while let Some(step) = ahead.pop() {
        if step == ".." {
            here.pop();
            continue;
        }
        let next = here.join(&step);
        let stat = statat(CWD, &next, AtFlags::SYMLINK_NOFOLLOW)?;
        if !FileType::from_raw_mode(stat.st_mode).is_symlink() {
            here = next;
            continue;
        }
        if writable.iter().any(|root| next != *root && next.starts_with(root)) {
            return Err(Lost::Planted(next));
        }
        let text = PathBuf::from(OsString::from_vec(readlinkat(CWD, &next, Vec::new())?.into_bytes()));
        if links.len() >= MAX_LINKS {
            return Err(Lost::Refused(Errno::LOOP));
        }
        if text.is_absolute() {
            here = PathBuf::from("/");
        }
        ahead.extend(steps(&text));
        links.push(Link { at: next, text });
    }
    Ok((here, links))
}

/// The steps of a path, the last one first.
fn steps(path: &Path) -> Vec<OsString> {
    let step = |component| match component {
        Component::Normal(name) => Some(OsString::from(name)),
        Component::ParentDir => Some(OsString::from("..")),
        _ => None,
    };
    path.components().rev().filter_map(step).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn p5_links_are_followed_outside_writable_trees_only() {
        let room = tempfile::tempdir().unwrap();
        let room = room.path().canonicalize().unwrap();
        std::fs::create_dir_all(room.join("real/work")).unwrap();
        symlink("real", room.join("link")).unwrap();
        symlink("/etc", room.join("real/work/planted")).unwrap();
        let (path, links) = follow(&room.join("link/work"), &[]).unwrap_or_else(|_| panic!("lost"));
        assert_eq!(path, room.join("real/work"));
        assert_eq!(
            links,
            [Link {
                at: room.join("link"),
                text: "real".into()
            }]
        );
        let writable = [room.join("real/work")];
        assert!(matches!(
            follow(&room.join("link/work/planted/passwd"), &writable),
            Err(Lost::Planted(_))
        ));
    }
}
