//! System calls as they are, without a library that would make them right.
//!
//! Trust: the attempts of this room. Buffers come as slices, so that the kernel is never given a wild pointer; a length
//! that is written beside a buffer is at most the buffer's.
//! The only file of this room with `unsafe`.
#![expect(unsafe_code, reason = "raw system calls are what is tried")]

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use libc::c_long;

/// An argument of a system call.
#[derive(Debug)]
pub enum Arg<'a> {
    /// A number, a flag or a descriptor.
    N(i64),
    /// Bytes that the kernel reads.
    In(&'a [u8]),
    /// Bytes that the kernel writes.
    Out(&'a mut [u8]),
    /// A text with a closing zero.
    Text(&'a CString),
}

impl Arg<'_> {
    fn word(self) -> c_long {
        match self {
            Self::N(number) => number,
            Self::In(bytes) => address(bytes) as c_long,
            Self::Out(bytes) => bytes.as_mut_ptr().expose_provenance() as c_long,
            Self::Text(text) => text.as_ptr().expose_provenance() as c_long,
        }
    }
}

/// Where bytes lie, for structures that hold addresses. They must live as long as the call.
pub fn address(bytes: &[u8]) -> u64 {
    bytes.as_ptr().expose_provenance() as u64
}

/// The same, where the kernel is to write. What is there afterwards must be read through `std::hint::black_box`.
pub fn address_to_write(bytes: &mut [u8]) -> u64 {
    bytes.as_mut_ptr().expose_provenance() as u64
}

/// Puts bytes into a buffer, as far as they go.
pub fn put(buffer: &mut [u8], at: usize, bytes: &[u8]) {
    for (into, from) in buffer.iter_mut().skip(at).zip(bytes) {
        *into = *from;
    }
}

/// Makes a system call.
pub fn call<const N: usize>(number: c_long, arguments: [Arg<'_>; N]) -> io::Result<i64> {
    let mut words: [c_long; 6] = [0; 6];
    for (word, argument) in words.iter_mut().zip(arguments) {
        *word = argument.word();
    }
    let [a, b, c, d, e, f] = words;
    // SAFETY: pointers come from slices and texts that live until the call returns; lengths are at most theirs.
    let done = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    if done < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(done)
    }
}

/// A path as the kernel takes it.
pub fn text(path: impl AsRef<Path>) -> CString {
    CString::new(path.as_ref().as_os_str().as_bytes()).unwrap_or_default()
}

/// Runs a function in a child and says with which wait status it ended. The program must have one thread.
pub fn in_child(act: impl FnOnce() -> i32) -> io::Result<i32> {
    // SAFETY: this program has one thread, so that nothing is held in the child.
    let child = unsafe { libc::fork() };
    match child {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let status = act();
            // SAFETY: leaves without running what belongs to the parent.
            unsafe { libc::_exit(status) }
        }
        child => {
            let mut status = 0;
            // SAFETY: the status lives until the call returns.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            Ok(status)
        }
    }
}

/// Runs a function in a child and does not wait.
pub fn leave_child(act: impl FnOnce() -> i32) -> io::Result<i32> {
    // SAFETY: as in `in_child`.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let status = act();
            // SAFETY: leaves without running what belongs to the parent.
            unsafe { libc::_exit(status) }
        }
        child => Ok(child),
    }
}

/// The first bytes of a file, read through a mapping.
pub fn mapped(descriptor: i32, length: usize) -> io::Result<Vec<u8>> {
    // SAFETY: a fresh mapping; nobody else has it.
    let at = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            4096,
            libc::PROT_READ,
            libc::MAP_PRIVATE,
            descriptor,
            0,
        )
    };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the mapping is a page; callers ask for less, of a file that is as long.
    Ok(unsafe { std::slice::from_raw_parts(at.cast::<u8>(), length.min(4096)) }.to_vec())
}

/// Writes the first bytes of a file through a shared mapping.
pub fn write_mapped(descriptor: i32, bytes: &[u8]) -> io::Result<()> {
    let flags = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a fresh mapping; nobody else has it.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), 4096, flags, libc::MAP_SHARED, descriptor, 0) };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let length = bytes.len().min(4096);
    // SAFETY: the mapping is a page, and the file is not empty.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), at.cast::<u8>(), length) };
    Ok(())
}

/// The bytes at an address that the kernel returned, such as that of a shared segment.
pub fn bytes_at(at: i64, length: usize) -> Vec<u8> {
    // SAFETY: called with what `shmat` returned, for at most the segment's length.
    unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance::<u8>(at as usize), length) }.to_vec()
}

/// A call of a 32-bit program, from a 64-bit one: number and up to three numbers.
#[cfg(target_arch = "x86_64")]
pub fn call_32(number: i32, arguments: [u32; 3]) -> i32 {
    let [a, b, c] = arguments;
    let done: i32;
    // SAFETY: the old gate for 32-bit calls; pointers lie below 4 GiB or the kernel refuses them.
    unsafe {
        std::arch::asm!(
            "push rbx", "mov ebx, {a:e}", "int 0x80", "pop rbx",
            a = in(reg) a, inlateout("eax") number => done, in("ecx") b, in("edx") c,
        );
    }
    done
}

/// A page below 4 GiB with these bytes, for calls of 32-bit programs.
#[cfg(target_arch = "x86_64")]
pub fn low_page(bytes: &[u8]) -> io::Result<u32> {
    let (kind, access) = (
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_32BIT,
        libc::PROT_READ | libc::PROT_WRITE,
    );
    // SAFETY: a fresh mapping; nobody else has it.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), 4096, access, kind, -1, 0) };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the page is larger than what is written.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), at.cast::<u8>(), bytes.len().min(2048)) };
    u32::try_from(at.expose_provenance()).map_err(|_| io::ErrorKind::OutOfMemory.into())
}

/// The second half of a page that [`low_page`] made.
#[cfg(target_arch = "x86_64")]
pub fn low_half(page: u32, length: usize) -> Vec<u8> {
    bytes_at(i64::from(page) + 2048, length.min(2048))
}

/// A number at an address of this process.
pub fn number_at(at: u64) -> u32 {
    // SAFETY: called with an address inside a mapping that is as long.
    unsafe { std::ptr::read_volatile(std::ptr::with_exposed_provenance::<u32>(at as usize)) }
}

/// Puts a number at an address of this process.
pub fn put_number_at(at: u64, number: u32) {
    // SAFETY: called with an address inside a writable mapping that is as long.
    unsafe { std::ptr::write_volatile(std::ptr::with_exposed_provenance_mut::<u32>(at as usize), number) }
}

/// Puts bytes at an address of this process.
pub fn put_bytes_at(at: i64, bytes: &[u8]) {
    // SAFETY: called with what `shmat` returned, for at most the segment's length.
    unsafe {
        std::ptr::copy_nonoverlapping(
            bytes.as_ptr(),
            std::ptr::with_exposed_provenance_mut::<u8>(at as usize),
            bytes.len(),
        );
    }
}
