//! The new root: a small file system of the fence's own, on which the trees, devices, `/proc` and scratch are mounted.
//!
//! Promises: P1, P13. Trust: what lies under a writable tree may be links that an agent planted; places to mount on
//! are found without following any link but those that were made here.
//! Not here: opening the machine's trees (`trees`), covering what is protected (`masks`).
//! See: mount_namespaces(7), pivot_root(2), proc(5), devpts in the kernel's documentation.

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use bailiwick_gate::{Content, FencePlan, LaunchFault, Limits};
use bailiwick_model::AbsPath;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, chmodat, mkdirat, openat, sendfile, symlinkat};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, MountAttrFlags, MountPropagationFlags, UnmountFlags, fsconfig_set_flag, fsmount, mount_change,
    unmount,
};
use rustix::process::{fchdir, pivot_root};

use crate::ask::Mount;
use crate::fault::{Says, failed, hint};
use crate::mounts::{attach, attach_on, clone_of, fresh};
use crate::order::MAX_CONTENT;
use crate::sys;
use crate::top::Top;
use crate::trees::{Tree, Trees};

/// The devices that exist inside.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
/// Links in `/dev` that programs expect.
const DEVICE_LINKS: [(&str, &str); 5] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
];
/// What of `/proc` can be looked at only.
const PROC_FIXED: [&str; 5] = ["sys", "sysrq-trigger", "irq", "bus", "fs"];
/// What of `/proc` is covered: it tells of the machine, not of the fence.
pub(crate) const PROC_HIDDEN: [&str; 9] = [
    "kcore",
    "kmsg",
    "keys",
    "key-users",
    "timer_list",
    "latency_stats",
    "sched_debug",
    "acpi",
    "scsi",
];
/// Where the new root stands while it is built. Whatever lies there has been opened before.
const SITES: [&str; 5] = ["/tmp", "/run", "/var", "/mnt", "/usr"];
/// What a file is called until it stands over another.
const PASSING: &str = ".bailiwick";

const QUIET: MountAttrFlags = MountAttrFlags::MOUNT_ATTR_NOSUID.union(MountAttrFlags::MOUNT_ATTR_NODEV);

/// A root under construction.
#[derive(Debug)]
pub(crate) struct Root {
    /// Its top folder.
    top: Top,
    /// Links made here, by where they stand.
    links: HashMap<PathBuf, PathBuf>,
    /// Folders made here that hold what is mounted, open. Nothing is ever mounted on one of these.
    holders: HashMap<PathBuf, OwnedFd>,
    /// Where something is mounted: below these, folders are not this root's own.
    mounted: HashSet<PathBuf>,
    /// What covers a hidden file, and a hidden folder.
    cover_file: OwnedFd,
    cover_folder: OwnedFd,
    /// Holds every scratch folder, so that one bound holds for all of them together.
    scratch: OwnedFd,
}

impl Root {
    /// Lays the empty root, with devices and `/proc`. The namespaces are new, and every tree has been opened.
    pub(crate) fn lay(limits: &Limits) -> Result<Self, LaunchFault> {
        let say = || "cannot make a root of its own".to_owned();
        mount_change(c"/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).or_say(say)?;
        let devices = DEVICES.map(|name| (name, clone_of(CWD, format!("/dev/{name}"))));
        // The covers and what holds the scratch folders stand below the new root, on the old one, and go with it: to
        // take them down by themselves would make the kernel wait.
        let covers = covers().or_say(say)?;
        let site = SITES.into_iter().find(|site| attach(&covers, CWD, *site).is_ok());
        let site = site.ok_or_else(|| failed(say(), "no folder to build it on"))?;
        let cover = |name| openat(&covers, name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        let (cover_file, cover_folder) = (cover("file").or_say(say)?, cover("folder").or_say(say)?);
        let scratch = bounded(limits.memory)
            .and_then(|made| attach(&made, CWD, site).map(|()| made))
            .or_say(say)?;
        let top = memory_folder("0755", QUIET).or_say(say)?;
        attach(&top, CWD, site).or_say(say)?;
        for folder in ["dev", "dev/pts", "dev/shm", "proc"] {
            mkdirat(&top, folder, Mode::from_raw_mode(0o755)).or_say(say)?;
        }
        let root = Self {
            top: Top::of(top),
            links: HashMap::new(),
            holders: HashMap::new(),
            mounted: ["dev/pts", "dev/shm", "proc"].map(PathBuf::from).into(),
            cover_file,
            cover_folder,
            scratch,
        };
        root.devices(devices)?;
        root.proc()?;
        Ok(root)
    }

    fn devices(&self, devices: [(&str, rustix::io::Result<OwnedFd>); 6]) -> Result<(), LaunchFault> {
        for (name, device) in devices {
            let say = || format!("cannot show `/dev/{name}` inside");
            let at = new_file(&self.top, &format!("dev/{name}"), Holds::Bytes(b""), 0o666).or_say(say)?;
            attach_on(&device.or_say(say)?, &at).or_say(say)?;
        }
        let say = || "cannot make a `/dev` of its own".to_owned();
        for (name, text) in DEVICE_LINKS {
            symlinkat(text, &self.top, format!("dev/{name}")).or_say(say)?;
        }
        let terminals = fresh(
            "devpts",
            &[
                ("newinstance", None),
                ("ptmxmode", Some("0666")),
                ("mode", Some("0620")),
            ],
        );
        let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        let terminals = terminals
            .and_then(|made| fsmount(&made, FsMountFlags::FSMOUNT_CLOEXEC, flags))
            .or_say(say)?;
        attach(&terminals, &self.top, "dev/pts").or_say(say)?;
        let shared = self.scratch_folder("shm", 0o1777).or_say(say)?;
        attach(&shared, &self.top, "dev/shm").or_say(say)
    }

    fn proc(&self) -> Result<(), LaunchFault> {
        let say = || "cannot make a `/proc` of its own".to_owned();
        let flags = QUIET | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        let made = fresh("proc", &[]).and_then(|made| fsmount(&made, FsMountFlags::FSMOUNT_CLOEXEC, flags));
        let made = hint(
            made.or_say(say),
            "inside a container the engine covers parts of `/proc`, and the kernel then refuses a new one: start the \
             container with an uncovered `/proc`, or run bailiwick outside it",
        )?;
        attach(&made, &self.top, "proc").or_say(say)?;
        for name in PROC_FIXED {
            let place = match clone_of(&self.top, format!("proc/{name}")) {
                Ok(place) => place,
                Err(Errno::NOENT) => continue,
                Err(errno) => return Err(failed(say(), crate::fault::cause(errno))),
            };
            sys::add_mount_flags(&place, MountAttrFlags::MOUNT_ATTR_RDONLY, true).or_say(say)?;
            attach(&place, &self.top, format!("proc/{name}")).or_say(say)?;
        }
        for name in PROC_HIDDEN {
            match self.exact(Path::new(&format!("proc/{name}"))) {
                Ok(place) => self.cover(&place).or_say(say)?,
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(failed(say(), crate::fault::cause(errno))),
            }
        }
        Ok(())
    }

    /// An empty folder in memory, not mounted anywhere yet, of those that share one bound.
    fn scratch_folder(&self, name: &str, mode: u32) -> rustix::io::Result<OwnedFd> {
        self.make_scratch(name, mode)?;
        clone_of(&self.scratch, name)
    }

    fn make_scratch(&self, name: &str, mode: u32) -> rustix::io::Result<()> {
        mkdirat(&self.scratch, name, Mode::from_raw_mode(0o700))?;
        // By itself: making it heeds the umask.
        chmodat(&self.scratch, name, Mode::from_raw_mode(mode), AtFlags::empty())
    }

    /// Lays a scratch folder over another, which is asked for the names that it does not have (overlayfs).
    fn over(&self, name: &str, below: &OwnedFd) -> rustix::io::Result<OwnedFd> {
        let (lower, work) = (format!("{name}-below"), format!("{name}-work"));
        for folder in [&lower, &work] {
            mkdirat(&self.scratch, folder, Mode::from_raw_mode(0o700))?;
        }
        attach(below, &self.scratch, &lower)?;
        // Where these are mounted something else stands over them: the kernel finds them by their holder's descriptor.
        let at = |folder: &str| format!("/proc/self/fd/{}/{folder}", self.scratch.as_raw_fd());
        let layers = [("lowerdir", at(&lower)), ("upperdir", at(name)), ("workdir", at(&work))];
        let mut settings: Vec<(&str, Option<&str>)> =
            layers.iter().map(|(key, path)| (*key, Some(path.as_str()))).collect();
        settings.push(("userxattr", None));
        fsmount(&fresh("overlay", &settings)?, FsMountFlags::FSMOUNT_CLOEXEC, QUIET)
    }

    /// Mounts the trees, those that are asked about, and the scratch folders, the shallow ones first, and writes the files.
    /// `contents` are what files are to hold that came along.
    pub(crate) fn furnish(
        &mut self,
        plan: &FencePlan,
        trees: &Trees,
        asked: &[Mount],
        contents: &[OwnedFd],
    ) -> Result<(), LaunchFault> {
        enum Piece<'a> {
            Scratch(&'a AbsPath),
            Tree(&'a Tree),
            Asked(&'a Mount),
        }
        let mut pieces: Vec<(&AbsPath, Piece<'_>)> =
            plan.scratch.iter().map(|path| (path, Piece::Scratch(path))).collect();
        pieces.extend(trees.trees.iter().map(|tree| (&tree.target, Piece::Tree(tree))));
        let (absent, asked): (Vec<&Mount>, Vec<&Mount>) = asked.iter().partition(|mount| mount.absent);
        pieces.extend(asked.into_iter().map(|mount| (&mount.place, Piece::Asked(mount))));
        pieces.sort_by_key(|(path, _)| path.segments().count());
        for (number, (path, piece)) in pieces.into_iter().enumerate() {
            let say = || format!("cannot show `{}` inside", path.as_str());
            let file = match &piece {
                Piece::Tree(tree) => !tree.folder,
                Piece::Asked(mount) => !mount.folder,
                Piece::Scratch(_) => false,
            };
            let folder;
            let mount = match &piece {
                Piece::Asked(mount) => &mount.mount,
                Piece::Tree(tree) => &tree.mount,
                Piece::Scratch(path) => {
                    let mode = if path.name() == Some("tmp") { 0o1777 } else { 0o755 };
                    let name = number.to_string();
                    self.make_scratch(&name, mode).or_say(say)?;
                    let below = absent.iter().find(|below| below.place == **path);
                    let heard = below.and_then(|below| self.over(&name, &below.mount).ok());
                    // One or the other: a detached mount that is never used makes the kernel wait when it is closed.
                    folder = match heard {
                        Some(heard) => heard,
                        None => clone_of(&self.scratch, &name).or_say(say)?,
                    };
                    &folder
                }
            };
            self.mount(path, file, mount)?;
        }
        for link in &trees.links {
            self.link(&link.at, &link.text)?;
        }
        plan.files.iter().try_for_each(|(path, content)| match content {
            Content::Handed(number) => {
                let lost = || {
                    failed(
                        format!("cannot write `{path}` inside"),
                        "its content has not come along",
                    )
                };
                self.file(path, Holds::Same(contents.get(*number).ok_or_else(lost)?))
            }
            content => self.file(path, Holds::Bytes(content.bytes())),
        })
    }

    /// Makes a link of the machine's anew, unless a tree shows it already.
    fn link(&mut self, at: &Path, text: &Path) -> Result<(), LaunchFault> {
        let inside = at.strip_prefix("/").unwrap_or(at);
        let say = || format!("cannot make the link `{}` inside", at.display());
        let known = |errno| matches!(errno, Errno::EXIST | Errno::ROFS);
        if let Some(folder) = at.parent() {
            let folder = AbsPath::new(folder).map_err(|fault| failed(say(), fault.to_string()))?;
            if folder != AbsPath::root() {
                self.place(&folder, false)?;
            }
        }
        match symlinkat(text, &self.top, inside) {
            Ok(()) => {
                self.links.insert(at.to_path_buf(), text.to_path_buf());
                Ok(())
            }
            Err(errno) if known(errno) => Ok(()),
            Err(errno) => Err(failed(say(), crate::fault::cause(errno))),
        }
    }

    /// The folder that everything is seen in.
    pub(crate) fn top(&self) -> &Top {
        &self.top
    }

    /// Opens what stands at a path of the new root, following no link.
    pub(crate) fn exact(&self, inside: &Path) -> rustix::io::Result<OwnedFd> {
        self.top.exact(inside)
    }

    /// Mounts at a path, and makes the place where it is missing. What lies above has been mounted before.
    fn mount(&mut self, path: &AbsPath, file: bool, mount: &OwnedFd) -> Result<(), LaunchFault> {
        let say = || format!("cannot show `{}` inside", path.as_str());
        let full = path.to_path_buf();
        let inside = full.strip_prefix("/").unwrap_or(&full);
        let own = !inside.ancestors().any(|above| self.mounted.contains(above));
        match (inside.parent(), inside.file_name()) {
            (Some(folder), Some(name)) if own => {
                let holder = self.holder(folder).or_say(say)?;
                if file {
                    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                    openat(holder, name, flags, Mode::from_raw_mode(0o644)).or_say(say)?;
                } else {
                    made_or_there(mkdirat(holder, name, Mode::from_raw_mode(0o755))).or_say(say)?;
                }
                // A link would not be followed.
                attach(mount, holder, name).or_say(say)?;
            }
            _ => attach_on(mount, &self.place(path, file)?).or_say(say)?,
        }
        self.mounted.insert(inside.to_path_buf());
        Ok(())
    }

    /// The folder of this root's own at a path, made where it is missing: no part of it is a link, on none is mounted.
    fn holder(&mut self, folder: &Path) -> rustix::io::Result<&OwnedFd> {
        if !self.holders.contains_key(folder) {
            let how = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::DIRECTORY;
            let open = match (folder.parent(), folder.file_name()) {
                (Some(above), Some(name)) => {
                    let above = self.holder(above)?;
                    made_or_there(mkdirat(above, name, Mode::from_raw_mode(0o755)))?;
                    openat(above, name, how, Mode::empty())?
                }
                _ => openat(&self.top, c".", how, Mode::empty())?,
            };
            self.holders.insert(folder.to_path_buf(), open);
        }
        self.holders.get(folder).ok_or(Errno::NOENT)
    }

    /// Finds the place to mount on, and makes it where it is missing.
    fn place(&self, path: &AbsPath, file: bool) -> Result<OwnedFd, LaunchFault> {
        let path = path.to_path_buf();
        let inside = path.strip_prefix("/").unwrap_or(&path);
        let say = || format!("cannot show `{}` inside", path.display());
        match self.exact(inside) {
            Ok(place) => return Ok(place),
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(failed(say(), crate::fault::cause(errno))),
        }
        let mut folder = self.exact(Path::new(".")).or_say(say)?;
        let mut steps = inside.components().peekable();
        while let Some(step) = steps.next() {
            let last = steps.peek().is_none();
            let how = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            if last && file {
                let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                openat(&folder, step.as_os_str(), flags, Mode::from_raw_mode(0o644)).or_say(say)?;
                return openat(&folder, step.as_os_str(), how, Mode::empty()).or_say(say);
            }
            match mkdirat(&folder, step.as_os_str(), Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(Errno::EXIST) => {}
                // A read-only tree has it, or the next step says that it does not.
                Err(Errno::ROFS) => {}
                Err(errno) => return Err(failed(say(), crate::fault::cause(errno))),
            }
            folder = openat(&folder, step.as_os_str(), how | OFlags::DIRECTORY, Mode::empty()).or_say(say)?;
        }
        Ok(folder)
    }

    /// Writes a small file: into the root itself where that is its place, else over what a tree shows there.
    fn file(&self, path: &AbsPath, content: Holds<'_>) -> Result<(), LaunchFault> {
        let say = || format!("cannot write `{}` inside", path.as_str());
        let mut path = path.to_path_buf();
        // A name that is a link, like many an `/etc/resolv.conf`: what counts is the file it leads to, inside.
        for _ in 0..8 {
            let inside = path.strip_prefix("/").unwrap_or(&path);
            let Ok(text) = rustix::fs::readlinkat(&self.top, inside, Vec::new()) else {
                break;
            };
            let text = PathBuf::from(std::ffi::OsString::from_vec(text.into_bytes()));
            let led = path.parent().unwrap_or(Path::new("/")).join(text);
            path = AbsPath::new(led)
                .map_err(|fault| failed(say(), fault.to_string()))?
                .to_path_buf();
        }
        let inside = path.strip_prefix("/").unwrap_or(&path);
        if self.exact(inside).is_err() {
            let folder = path.parent().filter(|folder| *folder != Path::new("/"));
            if let Some(folder) = folder.and_then(|folder| AbsPath::new(folder).ok()) {
                self.place(&folder, false)?;
            }
            if let Ok(_made) = new_file(&self.top, inside, content, 0o644) {
                let made = clone_of(&self.top, inside).or_say(say)?;
                // It may have been made inside a writable tree: there it would be the agent's to change.
                sys::add_mount_flags(&made, MountAttrFlags::MOUNT_ATTR_RDONLY, false).or_say(say)?;
                return attach(&made, &self.top, inside).or_say(say);
            }
        }
        new_file(&self.top, PASSING, content, 0o644).or_say(say)?;
        let made = clone_of(&self.top, PASSING).or_say(say)?;
        sys::add_mount_flags(&made, MountAttrFlags::MOUNT_ATTR_RDONLY, false).or_say(say)?;
        let done = attach(&made, &self.top, inside).or_say(say);
        rustix::fs::unlinkat(&self.top, PASSING, AtFlags::empty()).or_say(say)?;
        done
    }

    /// Covers a file or folder with one of mode 000 on a read-only file system.
    pub(crate) fn cover(&self, place: &OwnedFd) -> rustix::io::Result<()> {
        let stat = rustix::fs::fstat(place)?;
        let folder = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir();
        let cover = if folder { &self.cover_folder } else { &self.cover_file };
        attach_on(&clone_of(cover, "")?, place)
    }

    /// Closes the building site, makes the root read-only and enters it. What was the root before is gone.
    pub(crate) fn enter(self) -> Result<(), LaunchFault> {
        let say = || "cannot enter the fence's root".to_owned();
        drop((self.cover_file, self.cover_folder, self.scratch, self.holders));
        fchdir(&self.top).or_say(say)?;
        sys::add_mount_flags(&self.top, MountAttrFlags::MOUNT_ATTR_RDONLY, false).or_say(say)?;
        pivot_root(c".", c".").or_say(say)?;
        unmount(c".", UnmountFlags::DETACH).or_say(say)?;
        rustix::process::chdir(c"/").or_say(say)
    }
}

/// That something is there already is no fault.
fn made_or_there(made: rustix::io::Result<()>) -> rustix::io::Result<()> {
    match made {
        Err(Errno::EXIST) => Ok(()),
        made => made,
    }
}

/// An empty folder in memory, not mounted anywhere yet.
fn memory_folder(mode: &str, flags: MountAttrFlags) -> rustix::io::Result<OwnedFd> {
    let made = fresh("tmpfs", &[("mode", Some(mode))])?;
    fsmount(&made, FsMountFlags::FSMOUNT_CLOEXEC, flags)
}

/// A file system in memory that holds as much as the limit on memory says, else what the kernel gives: half of the
/// machine's memory.
fn bounded(memory: Option<u64>) -> rustix::io::Result<OwnedFd> {
    let size = memory.map(|bytes| bytes.to_string());
    // A file costs memory, too, when it is empty.
    let files = memory.map(|bytes| (bytes / 4096).saturating_add(1024).to_string());
    let mut settings = vec![("mode", Some("0700"))];
    settings.extend(size.as_deref().map(|size| ("size", Some(size))));
    settings.extend(files.as_deref().map(|files| ("nr_inodes", Some(files))));
    fsmount(&fresh("tmpfs", &settings)?, FsMountFlags::FSMOUNT_CLOEXEC, QUIET)
}

/// What a new file is to hold.
#[derive(Clone, Copy)]
enum Holds<'a> {
    /// These bytes.
    Bytes(&'a [u8]),
    /// The same as a file that is open.
    Same(&'a OwnedFd),
}

impl Holds<'_> {
    fn write(self, into: &OwnedFd) -> rustix::io::Result<()> {
        match self {
            Self::Bytes(mut rest) => {
                while !rest.is_empty() {
                    let written = rustix::io::write(into, rest)?;
                    rest = rest.get(written..).unwrap_or_default();
                }
            }
            Self::Same(file) => {
                let (mut at, mut left) = (0, usize::try_from(MAX_CONTENT).unwrap_or(usize::MAX));
                while left > 0 {
                    match sendfile(into, file, Some(&mut at), left)? {
                        0 => break,
                        copied => left = left.saturating_sub(copied),
                    }
                }
            }
        }
        Ok(())
    }
}

fn new_file(
    folder: impl AsFd,
    path: impl rustix::path::Arg + Copy,
    content: Holds<'_>,
    mode: u32,
) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = openat(&folder, path, flags, Mode::from_raw_mode(mode))?;
    content.write(&made)?;
    drop(made);
    openat(
        &folder,
        path,
        OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    )
}

/// Makes what covers hidden files and folders, on a file system that is read-only as a whole.
fn covers() -> rustix::io::Result<OwnedFd> {
    let made = fresh("tmpfs", &[("mode", Some("0700"))])?;
    let mount = fsmount(
        &made,
        FsMountFlags::FSMOUNT_CLOEXEC,
        QUIET | MountAttrFlags::MOUNT_ATTR_NOEXEC,
    )?;
    drop(new_file(&mount, "file", Holds::Bytes(b""), 0)?);
    mkdirat(&mount, "folder", Mode::empty())?;
    fsconfig_set_flag(made.as_fd(), "ro")?;
    rustix::mount::fsconfig_reconfigure(made.as_fd())?;
    sys::add_mount_flags(&mount, MountAttrFlags::MOUNT_ATTR_RDONLY, false).map_err(|_| Errno::PERM)?;
    Ok(mount)
}
