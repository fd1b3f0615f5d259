//! Chores: what must be done, but while nobody waits for it. One thread does them in order.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use bailiwick_fence::Running;
use bailiwick_gate::{Store, TaskRow};
use bailiwick_model::TaskId;
use bailiwick_store::SqliteStore;

use super::spare::NetworkGate;

/// One chore.
enum Chore {
    /// Keeps a task's row.
    Keep(Box<TaskRow>),
    /// Keeps what a task was ordered by, as text.
    KeepOrder(TaskId, String),
    /// Ends a network gate and waits for it.
    EndGate(Box<NetworkGate>),
    /// Lets go of a launcher whose fence has ended, and waits for it.
    EndLauncher(Box<Running>),
    /// Answers when all before it is done.
    Report(Sender<()>),
}

/// The way to hand chores over.
#[derive(Clone)]
pub struct Chores {
    queue: Sender<Chore>,
}

impl Chores {
    /// Starts the thread.
    pub fn begin(store: Arc<SqliteStore>) -> Self {
        let (queue, chores) = channel();
        std::thread::spawn(move || work(&store, &chores));
        Self { queue }
    }

    /// Keeps a task's row, soon.
    pub fn keep(&self, row: TaskRow) {
        self.add(Chore::Keep(Box::new(row)));
    }

    /// Keeps what a task was ordered by, soon.
    pub fn keep_order(&self, task: TaskId, order: String) {
        self.add(Chore::KeepOrder(task, order));
    }

    /// Ends a network gate, soon. Its channel is closed at once.
    pub fn end_gate(&self, gate: NetworkGate) {
        let _ = gate.channel.shutdown(std::net::Shutdown::Both);
        self.add(Chore::EndGate(Box::new(gate)));
    }

    /// Lets go of a launcher whose fence has ended, soon: it takes down what was mounted there.
    pub fn end_launcher(&self, running: Running) {
        self.add(Chore::EndLauncher(Box::new(running)));
    }

    /// Waits until all that was handed over is done.
    pub fn finish(&self) {
        let (done, wait) = channel();
        self.add(Chore::Report(done));
        let _ = wait.recv();
    }

    fn add(&self, chore: Chore) {
        if self.queue.send(chore).is_err() {
            talkln!("bailiwick: a chore could not be handed over");
        }
    }
}

fn work(store: &SqliteStore, chores: &Receiver<Chore>) {
    while let Ok(chore) = chores.recv() {
        match chore {
            Chore::Keep(row) => {
                if let Err(fault) = store.put_task(&row) {
                    talkln!("bailiwick: task {} could not be kept: {fault}", row.id);
                }
            }
            Chore::KeepOrder(task, order) => {
                if let Err(fault) = store.put_order(task, &order) {
                    talkln!("bailiwick: task {task} cannot be resumed later: {fault}");
                }
            }
            Chore::EndGate(gate) => gate.end(),
            Chore::EndLauncher(running) => drop(running),
            Chore::Report(done) => {
                let _ = done.send(());
            }
        }
    }
}
