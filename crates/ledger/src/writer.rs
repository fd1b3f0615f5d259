//! The writer: the one thread that owns the files of an open log.
//!
//! Answers: when is a record written, synced, put into tiles, published?
//! Promises: P10 (durable records are on disk before anyone is told; ordered ones within 50 ms; a failed write leaves
//! no hole and loses nothing that was acknowledged).
//! Not here: places and acknowledgement (`queue`), reading back (`open`).
//! See: docs/design/log.md, "the life of a record".

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bailiwick_gate::{LedgerFault, Receipt};

use crate::folder::CHECKPOINT;
use crate::note;
use crate::open::{OnDisk, begin, remove_partial};
use crate::queue::{Order, Queue, Queued, State};
use crate::tail;
use crate::tile::{Place, Tile, WIDTH};
use crate::tree::{Hash, Tree, leaf};

/// How long ordered records are gathered before they are written.
const GATHER: Duration = Duration::from_millis(2);
/// How long written records may wait for others before they are synced: P10 leaves 50 ms, a sync takes some of that.
const SYNC: Duration = Duration::from_millis(20);
/// How long new records may stand in the tail alone before a checkpoint is published.
const PUBLISH: Duration = Duration::from_secs(1);
/// How long a failed log rests before it tries again.
const RETRY: Duration = Duration::from_secs(1);
/// How many bytes of records a frame has at most.
const MAX_FRAME: usize = 4 << 20;
/// How many bytes are kept free on disk for the tail, when there are as many.
const ROOM: u64 = 4 << 20;

/// When a segment of the tail is full.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Turnover {
    pub(crate) bytes: u64,
    pub(crate) records: u64,
}

impl Default for Turnover {
    /// Reading a full tail at opening takes well below a second.
    fn default() -> Self {
        Self {
            bytes: 32 << 20,
            records: 65_536,
        }
    }
}

/// Owns the files of an open log.
pub(crate) struct Writer {
    queue: Arc<Queue>,
    on_disk: OnDisk,
    turnover: Turnover,
    /// All that stands in the tail, synced or not.
    written: Tree,
    written_len: u64,
    /// Up to where the last segment's room is kept free; none where the disk cannot do that.
    reserved: Option<u64>,
    unsynced: Vec<(Queued, Hash)>,
    unsynced_note: String,
    /// Full tiles that are not on disk yet.
    unfiled: VecDeque<Tile>,
    older: VecDeque<(PathBuf, u64)>,
    sweeper: Sweeper,
    /// How many records the published checkpoint covers.
    published: Option<u64>,
    publish_at: Option<Instant>,
    /// The partial tiles of the last publication and of the one before.
    partials: [Vec<Place>; 2],
    retry_at: Option<Instant>,
}

/// What there is to do.
struct Work {
    records: Vec<Queued>,
    orders: Vec<Order>,
    urgent: bool,
    closing: bool,
}

impl Writer {
    pub(crate) fn new(queue: Arc<Queue>, mut on_disk: OnDisk, turnover: Turnover) -> Self {
        Self {
            queue,
            turnover,
            written: on_disk.shelf.tree().clone(),
            written_len: on_disk.len,
            reserved: Some(on_disk.len),
            unsynced: Vec::new(),
            unsynced_note: String::new(),
            unfiled: VecDeque::new(),
            older: std::mem::take(&mut on_disk.older).into(),
            sweeper: Sweeper::new(&on_disk),
            published: None,
            publish_at: None,
            partials: Default::default(),
            retry_at: None,
            on_disk,
        }
    }

    /// Writes until the log is closed.
    pub(crate) fn run(mut self) {
        let room = self.keep_room();
        self.tell_state(room.err());
        loop {
            let work = self.await_work();
            let (mut orders, closing) = (work.orders, work.closing);
            let publish = closing || orders.iter().any(|order| order.publish);
            let sync = work.urgent || publish || !orders.is_empty();
            let committed = self.commit(work.records, sync);
            if committed.is_ok() {
                // What is signed stands in the tail: they need not wait for the files that others read.
                for order in orders.extract_if(.., |order| !order.publish) {
                    order.answer(Ok(self.on_disk.note.clone()));
                }
            }
            let done = committed
                .and_then(|()| self.tidy(publish))
                .and_then(|()| self.keep_room());
            self.tell_state(done.err());
            for order in orders {
                let fault = self.queue.lock().fault.clone();
                order.answer(fault.map_or_else(|| Ok(self.on_disk.note.clone()), Err));
            }
            if closing {
                self.end();
                return;
            }
        }
    }

    /// Waits until there is something to do, and takes it.
    fn await_work(&mut self) -> Work {
        let queue = self.queue.clone();
        let mut state = queue.lock();
        loop {
            let now = Instant::now();
            let due = self.due(&state);
            if state.closed || !state.orders.is_empty() || due.is_some_and(|due| due <= now) {
                break;
            }
            state = queue.wait(state, due.map(|due| due - now));
        }
        // What is taken uses up its room; more is kept free when it is written.
        state.room = state.room.saturating_sub(std::mem::take(&mut state.need));
        Work {
            records: std::mem::take(&mut state.waiting),
            orders: std::mem::take(&mut state.orders),
            urgent: std::mem::take(&mut state.urgent),
            closing: state.closed,
        }
    }

    /// When the next thing is to be done, if nothing else happens.
    fn due(&self, state: &State) -> Option<Instant> {
        if self.retry_at.is_some() {
            return self.retry_at;
        }
        let first = state.waiting.first().map(|first| first.since);
        let write = match first {
            Some(since) if state.urgent || state.need >= 1 << 20 => Some(since),
            Some(since) => Some(since + GATHER),
            None => None,
        };
        let sync = self.unsynced.first().map(|(first, _)| first.since + SYNC);
        [write, sync, self.publish_at].into_iter().flatten().min()
    }

    /// Writes records to the tail, and syncs it when asked to or when it is time. Takes all back when that fails.
    fn commit(&mut self, records: Vec<Queued>, sync: bool) -> io::Result<()> {
        let synced = self.on_disk.shelf.tree().size();
        let at = self.unsynced.len();
        self.unsynced.extend(records.into_iter().map(|record| {
            let hash = leaf(&record.bytes);
            (record, hash)
        }));
        let now = Instant::now();
        let aged = self
            .unsynced
            .first()
            .is_some_and(|(first, _)| first.since + SYNC <= now);
        let written = self
            .write(at, synced)
            .and_then(|()| if sync || aged { self.sync() } else { Ok(()) });
        written.inspect_err(|error| self.take_back(error))
    }

    /// Writes the records from `at` on.
    fn write(&mut self, at: usize, synced: u64) -> io::Result<()> {
        let mut rest = self.unsynced.get(at..).unwrap_or_default();
        let mut out = Vec::new();
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = |(record, _): &&(Queued, Hash)| {
                bytes += record.bytes.len();
                bytes <= MAX_FRAME
            };
            let count = rest.iter().take_while(fits).count().max(1);
            let (group, after) = rest.split_at_checked(count).unwrap_or((rest, &[]));
            let first = self.written.size();
            group.iter().for_each(|(_, hash)| self.written.push(*hash));
            let OnDisk { key, origin, .. } = &self.on_disk;
            self.unsynced_note = note::sign(key, origin, self.written.size(), &self.written.root());
            let entries = group.iter().map(|(record, hash)| (record.bytes.as_slice(), hash));
            tail::write_frame(&mut out, first, synced, &self.unsynced_note, entries);
            rest = after;
        }
        if !out.is_empty() {
            self.on_disk.disk.write(&self.on_disk.file, self.written_len, &out)?;
            self.written_len += out.len() as u64;
        }
        Ok(())
    }

    /// Syncs the tail, tells those who waited, and puts the records on the shelf.
    fn sync(&mut self) -> io::Result<()> {
        if self.unsynced.is_empty() {
            return Ok(());
        }
        self.on_disk.disk.sync(&self.on_disk.file)?;
        self.on_disk.len = self.written_len;
        self.on_disk.note.clone_from(&self.unsynced_note);
        let first = self.on_disk.shelf.tree().size();
        for (index, (record, _)) in (first..).zip(&self.unsynced) {
            if let Some(slot) = &record.slot {
                slot.fill(Ok(Receipt {
                    index,
                    checkpoint: Some(self.on_disk.note.clone()),
                }));
            }
        }
        let mut full = Vec::new();
        for (record, hash) in self.unsynced.drain(..) {
            self.on_disk.shelf.push(&record.bytes, hash, &mut full);
        }
        self.unfiled.extend(full);
        Ok(())
    }

    /// Goes back to what is surely on disk. Those who wait are told; what was acknowledged already stays first in the
    /// queue, and is written again at once if it can be: room was kept for it.
    fn take_back(&mut self, error: &io::Error) {
        let fault = error.to_string();
        self.reset();
        let mut failed = Vec::new();
        let mut state = self.queue.lock();
        let taken = self.unsynced.drain(..).map(|(record, _)| record);
        let waiting = std::mem::take(&mut state.waiting);
        let (kept, lost): (Vec<_>, Vec<_>) = taken.chain(waiting).partition(|record| record.slot.is_none());
        failed.extend(lost.into_iter().filter_map(|record| record.slot));
        state.next = self.written.size() + kept.len() as u64;
        state.need = 0;
        state.room = 0;
        state.urgent = false;
        state.fault = Some(fault.clone());
        drop(state);
        failed
            .iter()
            .for_each(|slot| slot.fill(Err(LedgerFault::Io(fault.clone()))));

        let synced = self.on_disk.shelf.tree().size();
        self.unsynced = kept
            .into_iter()
            .map(|record| (leaf(&record.bytes), record))
            .map(|(hash, record)| (record, hash))
            .collect();
        let again = self.write(0, synced).and_then(|()| self.sync());
        if again.is_err() {
            self.reset();
            let kept: Vec<_> = self.unsynced.drain(..).map(|(record, _)| record).collect();
            // Nothing was appended in between: the log has a fault.
            self.queue.lock().waiting = kept;
        }
        // What failed must not be found by a later opening. Where even that fails, a retry overwrites it.
        let _ = self.on_disk.file.set_len(self.written_len);
        self.reserved = self.reserved.map(|_| self.written_len);
    }

    fn reset(&mut self) {
        self.written = self.on_disk.shelf.tree().clone();
        self.written_len = self.on_disk.len;
    }

    /// Does what follows from synced records: full tiles, a new segment, the published checkpoint.
    fn tidy(&mut self, publish: bool) -> io::Result<()> {
        while let Some(tile) = self.unfiled.front() {
            let OnDisk { disk, folder, .. } = &self.on_disk;
            disk.put(&folder.join(tile.place.path()), &tile.bytes, false)?;
            remove_partial(folder, tile.place);
            self.unfiled.pop_front();
        }
        let filed = self.on_disk.shelf.tree().size() / WIDTH * WIDTH;
        while let Some((path, _)) = self.older.pop_front_if(|(_, end)| *end <= filed) {
            self.sweeper.sweep(path);
        }
        let size = self.on_disk.shelf.tree().size();
        let many = self.on_disk.len >= self.turnover.bytes || size - self.on_disk.start >= self.turnover.records;
        if many && self.unsynced.is_empty() {
            let (path, file, len) = begin(&*self.on_disk.disk, &self.on_disk.folder, size, &self.on_disk.note)?;
            // Gives back what was kept free behind it; if that fails it is only larger.
            let _ = self.on_disk.file.set_len(self.on_disk.len);
            self.older
                .push_back((std::mem::replace(&mut self.on_disk.path, path), size));
            self.on_disk.file = file;
            self.on_disk.start = size;
            self.on_disk.len = len;
            self.written_len = len;
            self.reserved = self.reserved.map(|_| len);
        }
        if self.published != Some(size) {
            let at = *self.publish_at.get_or_insert_with(|| Instant::now() + PUBLISH);
            if publish || at <= Instant::now() {
                self.publish()?;
            }
        }
        Ok(())
    }

    /// Publishes the checkpoint that covers all that is synced, its partial tiles first.
    fn publish(&mut self) -> io::Result<()> {
        let OnDisk {
            disk,
            folder,
            shelf,
            note,
            ..
        } = &self.on_disk;
        let tiles = shelf.partial();
        for tile in &tiles {
            disk.put(&folder.join(tile.place.path()), &tile.bytes, false)?;
        }
        disk.put(&folder.join(CHECKPOINT), note.as_bytes(), true)?;
        let places: Vec<_> = tiles.iter().map(|tile| tile.place).collect();
        // Those of the publication before stay, for a reader who has just read its checkpoint.
        let [last, before] = std::mem::take(&mut self.partials);
        for place in before
            .iter()
            .filter(|place| !last.contains(place) && !places.contains(place))
        {
            let _ = fs::remove_file(folder.join(place.path()));
        }
        self.partials = [places, last];
        self.published = Some(shelf.tree().size());
        self.publish_at = None;
        Ok(())
    }

    /// Keeps room on disk for what comes. A log that has failed is well again only when there is some.
    fn keep_room(&mut self) -> io::Result<()> {
        let Some(reserved) = self.reserved else { return Ok(()) };
        let need = self.queue.lock().need;
        if reserved.saturating_sub(self.written_len) >= need + ROOM / 2 {
            return Ok(());
        }
        let mut failed = None;
        for room in [need + ROOM, need + (64 << 10)] {
            match self.on_disk.disk.reserve(&self.on_disk.file, self.written_len, room) {
                Ok(kept) => {
                    self.reserved = kept.then_some(self.written_len + room);
                    return Ok(());
                }
                Err(error) => failed = Some(error),
            }
        }
        failed.filter(|_| self.retry_at.is_some()).map_or(Ok(()), Err)
    }

    /// Lets those who append know how things stand.
    fn tell_state(&mut self, error: Option<io::Error>) {
        self.retry_at = error.as_ref().map(|_| Instant::now() + RETRY);
        let unsynced = self.unsynced.first().map(|(record, _)| record.since);
        let mut state = self.queue.lock();
        state.room = self
            .reserved
            .map_or(u64::MAX / 2, |end| end.saturating_sub(self.written_len));
        state.oldest = unsynced.or(state.waiting.first().map(|record| record.since));
        state.fault = error.map(|error| error.to_string());
    }

    /// Ends: nobody is left waiting, and the room that was kept is given back.
    fn end(mut self) {
        let left = std::mem::take(&mut self.queue.lock().waiting);
        left.iter()
            .filter_map(|record| record.slot.as_ref())
            .for_each(|slot| slot.fill(Err(LedgerFault::Closed)));
        let _ = self.on_disk.file.set_len(self.written_len);
        self.sweeper.end();
    }
}

/// Takes away segments of the tail whose records stand in tiles, once the tiles are on disk. A thread of its own:
/// waiting for a whole file system can take long.
struct Sweeper {
    paths: Option<mpsc::Sender<PathBuf>>,
    thread: Option<JoinHandle<()>>,
}

impl Sweeper {
    fn new(on_disk: &OnDisk) -> Self {
        let (paths, to_sweep) = mpsc::channel::<PathBuf>();
        let (disk, folder) = (on_disk.disk.clone(), on_disk.lock.try_clone());
        let sweep = move || {
            let mut paths = Vec::new();
            while let Ok(path) = to_sweep.recv() {
                paths.push(path);
                paths.extend(to_sweep.try_iter());
                if folder.as_ref().is_ok_and(|folder| disk.sync_all(folder).is_ok()) {
                    // Oldest first, so that the tail never has a gap.
                    paths.drain(..).for_each(|path| drop(fs::remove_file(path)));
                }
            }
        };
        // Without the thread old segments stay until the next opening: safe, only larger.
        let thread = thread::Builder::new().name("log-sweep".into()).spawn(sweep).ok();
        Self {
            paths: Some(paths),
            thread,
        }
    }

    fn sweep(&self, path: PathBuf) {
        if let Some(paths) = &self.paths {
            let _ = paths.send(path);
        }
    }

    fn end(&mut self) {
        self.paths = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
