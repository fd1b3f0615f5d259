"""A container as engines make them by default, for one test.

hold           as the first process of new mount and pid namespaces: lays the mounts, says `ready`, and stays until its input
               ends. With it ends everything that was started in the container.
enter FOLDER PROGRAM [ARGUMENT...]
               inside those namespaces: gives up the capabilities that engines give up, takes their filter on system calls,
               and becomes the program, in the folder.

Kept apart as engines do it: `/proc` is masked, so that the kernel refuses a fresh one; `/sys` is read-only, so that no
control group is delegated; no user namespaces, no mounts.
See: capabilities(7), "EINVAL/EPERM" in mount_namespaces(7); <https://docs.docker.com/engine/security/seccomp/>.
"""

import ctypes
import os
import platform
import struct
import sys

LIBC = ctypes.CDLL(None, use_errno=True)

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND, MS_REC = 1, 2, 4, 8, 32, 4096, 16384
MASKED = ["acpi", "asound", "interrupts", "kcore", "keys", "latency_stats", "timer_list", "sched_debug", "scsi"]
READ_ONLY = ["bus", "fs", "irq", "sys", "sysrq-trigger"]

# CHOWN DAC_OVERRIDE FOWNER FSETID KILL SETGID SETUID SETPCAP NET_BIND_SERVICE NET_RAW SYS_CHROOT MKNOD AUDIT_WRITE SETFCAP
KEPT_CAPABILITIES = {0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31}

# Every flag of clone(2) that makes a namespace.
NAMESPACES = 0x7E020000
EPERM, ENOSYS = 1, 38

# Number of clone and of the calls that are refused whole: mount umount2 pivot_root unshare setns fsopen fsconfig fsmount
# fspick open_tree move_mount mount_setattr bpf perf_event_open keyctl add_key request_key userfaultfd io_uring_setup.
NEW_CALLS = [430, 431, 432, 433, 428, 429, 442, 425]
MACHINES = {
    "x86_64": (0xC000003E, 56, [165, 166, 155, 272, 308, 321, 298, 250, 248, 249, 323]),
    "aarch64": (0xC00000B7, 220, [40, 39, 41, 97, 268, 280, 241, 219, 217, 218, 282]),
}
CLONE3 = 435


def call(name, *arguments):
    if getattr(LIBC, name)(*arguments) != 0:
        error = ctypes.get_errno()
        sys.exit(f"container: {name}{arguments}: {os.strerror(error)}")


def mount(source, target, kind, flags):
    text = [part.encode() if part else None for part in (source, target, kind)]
    call("mount", *text, ctypes.c_ulong(flags), None)


def read_only(path):
    mount(path, path, None, MS_BIND | MS_REC)
    # What the kernel has locked has to be said again.
    locked = {1: MS_RDONLY, 2: MS_NOSUID, 4: MS_NODEV, 8: MS_NOEXEC}
    seen = os.statvfs(path).f_flag
    kept = sum(flag for bit, flag in locked.items() if seen & bit)
    mount(None, path, None, MS_BIND | MS_REMOUNT | MS_RDONLY | kept)


def hold():
    mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    for path in [f"/proc/{name}" for name in READ_ONLY] + ["/sys", "/sys/fs/cgroup"]:
        if os.path.exists(path):
            read_only(path)
    masked = [path for path in (f"/proc/{name}" for name in MASKED) if os.path.exists(path)]
    for path in masked:
        if os.path.isdir(path):
            mount("tmpfs", path, "tmpfs", MS_RDONLY)
        else:
            mount("/dev/null", path, None, MS_BIND)
    if not masked:
        sys.exit("container: this kernel has nothing in /proc to mask")
    print("ready", flush=True)
    sys.stdin.read()


def filter_program():
    audit, clone, refused = MACHINES[platform.machine()]
    refused = refused + NEW_CALLS
    allow, deny, missing = 0x7FFF0000, 0x00050000 | EPERM, 0x00050000 | ENOSYS
    load, equal, either, answer = 0x20, 0x15, 0x45, 0x06
    steps = [(load, 0, 0, 4), (equal, 1, 0, audit), (answer, 0, 0, deny), (load, 0, 0, 0)]
    for number in refused:
        steps += [(equal, 0, 1, number), (answer, 0, 0, deny)]
    steps += [(equal, 0, 1, CLONE3), (answer, 0, 0, missing)]
    # The flags are the first argument, in its lower half.
    steps += [(equal, 0, 3, clone), (load, 0, 0, 16), (either, 0, 1, NAMESPACES), (answer, 0, 0, deny)]
    steps += [(answer, 0, 0, allow)]
    return steps


def enter(folder, program):
    if os.geteuid() == 0:
        capability = 0
        while LIBC.prctl(23, capability, 0, 0, 0) >= 0:
            if capability not in KEPT_CAPABILITIES:
                call("prctl", 24, capability, 0, 0, 0)
            capability += 1
    os.chdir(folder)
    steps = filter_program()
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in steps))

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_void_p)]

    whole = Program(len(steps), ctypes.cast(code, ctypes.c_void_p))
    call("prctl", 38, 1, 0, 0, 0)
    call("prctl", 22, 2, ctypes.byref(whole), 0, 0)
    try:
        os.execvp(program[0], program)
    except OSError as error:
        sys.exit(f"container: cannot start {program[0]}: {error}")


if sys.argv[1] == "hold":
    hold()
else:
    enter(sys.argv[2], sys.argv[3:])
