//! Turns: which of the threads that answer takes the next call.
//!
//! The kernel wakes all that wait for a listener, at each call, though one takes it (`recv_wait_event` in `kernel/seccomp.c`):
//! the more threads rest, the more each call costs. So they wait for an event that comes to one of them, and is asked for anew
//! as soon as that one has taken its call. One that finds no call any more, since its caller died, waits for the next itself.
//! See: epoll(7), `EPOLLONESHOT`.

use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;

/// Who takes the next call.
#[derive(Debug)]
pub(super) struct Turns(OwnedFd);

const ONE: EventFlags = EventFlags::IN.union(EventFlags::ONESHOT);

impl Turns {
    pub(super) fn of(listener: BorrowedFd<'_>) -> Result<Self, Errno> {
        let turns = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&turns, listener, EventData::new_u64(0), ONE)?;
        Ok(Self(turns))
    }

    /// Waits until it is this thread's turn.
    pub(super) fn wait(&self) -> Result<(), Errno> {
        let mut event = [Event {
            flags: EventFlags::empty(),
            data: EventData::new_u64(0),
        }];
        loop {
            if epoll::wait(&self.0, &mut event, None)? > 0 {
                return Ok(());
            }
        }
    }

    /// Gives the turn to whoever waits, now or at the next call.
    pub(super) fn pass(&self, listener: BorrowedFd<'_>) -> Result<(), Errno> {
        epoll::modify(&self.0, listener, EventData::new_u64(0), ONE)
    }
}
