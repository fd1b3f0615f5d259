//! The terminal: taken, drawn on, read from, given back, whatever happens.
//!
//! Promises: P8 (what was typed before something could be seen is thrown away). Trust: keys come from whoever sits at the
//! terminal; what is written to it has been through `cells`.
//! Not here: what a key does (`keys`), what is drawn (`draw`).

use std::io::{self, Stdout, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bailiwick_gate::desk::{Approver, Asked, Desk, DeskFault};
use bailiwick_model::Millis;
use jiff::tz::TimeZone;
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{
    self, DisableBracketedPaste, EnableBracketedPaste, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers,
};
use ratatui::crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use ratatui::crossterm::{cursor, execute};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM, SIGTSTP};

use crate::draw::draw;
use crate::guard::{Code, Key};
use crate::keys;
use crate::state::{Effect, Layer, Outcome, Snapshot, State};

/// How long a key is waited for before something else is looked at.
const BEAT: Duration = Duration::from_millis(50);

/// A pause after which nothing on the screen counts as having been looked at.
const AWAY: Duration = Duration::from_millis(1000);

/// The longest wait for a change: tasks come and go without one.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long to wait before a desk is tried again that could not be reached.
const AGAIN: Duration = Duration::from_millis(500);

/// Most keys that are taken before the screen is drawn again.
const BURST: usize = 64;

/// Lets a terminal that orders letters by their script show them in the order in which they stand (ECMA-48, BDSM), and back.
const AS_IT_STANDS: &[u8] = b"\x1b[8l";
const AS_BEFORE: &[u8] = b"\x1b[8h";

/// Shows what waits on the terminal of this process, and takes answers, until the person leaves.
pub fn run(desk: Arc<dyn Desk>, by: Approver) -> io::Result<()> {
    let signals = Signalled::watch()?;
    let begun = Instant::now();
    let coloured = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let mut state = State::new(by.clone(), TimeZone::system(), now(), coloured);
    let taken = Taken::take()?;
    let mut terminal = Terminal::new(CrosstermBackend::new(io::stdout()))?;
    let heard = Arc::new(Heard::default());
    watch(Arc::clone(&desk), by, Arc::clone(&heard));
    let mut session = Session {
        desk,
        begun,
        outcomes: channel(),
        taken,
        left: false,
    };
    let done = session.go(&mut terminal, &mut state, &heard, &signals);
    heard.done.store(true, Ordering::Relaxed);
    done
}

fn now() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    Millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// What signals have said.
struct Signalled {
    ends: Arc<AtomicBool>,
    stops: Arc<AtomicBool>,
    goes_on: Arc<AtomicBool>,
}

impl Signalled {
    fn watch() -> io::Result<Self> {
        let watched = Self {
            ends: Arc::default(),
            stops: Arc::default(),
            goes_on: Arc::default(),
        };
        // Reading from a terminal that has gone does not come back: nobody would look at a flag.
        let mut hung_up = signal_hook::iterator::Signals::new([SIGHUP])?;
        std::thread::spawn(move || {
            if hung_up.forever().next().is_some() {
                Taken::give_back();
                std::process::exit(128 + SIGHUP);
            }
        });
        for (signal, flag) in [
            (SIGTERM, &watched.ends),
            (SIGINT, &watched.ends),
            (SIGTSTP, &watched.stops),
            (SIGCONT, &watched.goes_on),
        ] {
            signal_hook::flag::register(signal, Arc::clone(flag))?;
        }
        Ok(watched)
    }
}

/// The terminal, as long as it is taken.
struct Taken;

impl Taken {
    fn take() -> io::Result<Self> {
        // Also where something goes wrong that nobody foresaw.
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |what| {
            Self::give_back();
            before(what);
        }));
        let taken = Self;
        Self::enter()?;
        Ok(taken)
    }

    fn enter() -> io::Result<()> {
        enable_raw_mode()?;
        let mut out = io::stdout();
        execute!(out, EnterAlternateScreen, EnableBracketedPaste, cursor::Hide)?;
        out.write_all(AS_IT_STANDS)?;
        out.flush()
    }

    fn give_back() {
        let mut out = io::stdout();
        let _ = out.write_all(AS_BEFORE);
        let _ = execute!(out, DisableBracketedPaste, LeaveAlternateScreen, cursor::Show);
        let _ = disable_raw_mode();
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        Self::give_back();
    }
}

/// What the desk had when it was looked at last: the newest only.
#[derive(Default)]
struct Heard {
    newest: Mutex<Option<Result<Snapshot, DeskFault>>>,
    done: AtomicBool,
}

impl Heard {
    fn newest(&self) -> MutexGuard<'_, Option<Result<Snapshot, DeskFault>>> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the desk has now. Questions may be many and long, and are the same as long as nothing has changed; how often a grant was
/// used, and which tasks run, may have.
fn look(desk: &dyn Desk, known: Option<Vec<Arc<Asked>>>) -> Result<Snapshot, DeskFault> {
    let asked = match known {
        Some(known) => known,
        None => desk.asked()?.into_iter().map(Arc::new).collect(),
    };
    Ok(Snapshot {
        asked,
        granted: desk.granted()?,
        at_work: desk.at_work()?,
    })
}

/// Looks at the desk whenever something has changed there, from a thread of its own.
fn watch(desk: Arc<dyn Desk>, by: Approver, heard: Arc<Heard>) {
    std::thread::spawn(move || {
        let mut seen = 0;
        let mut known = None;
        while !heard.done.load(Ordering::Relaxed) {
            let snapshot = look(desk.as_ref(), known.take());
            let asked = snapshot.as_ref().ok().map(|snapshot| snapshot.asked.clone());
            *heard.newest() = Some(snapshot);
            match desk.changed(seen, PATIENCE, &by) {
                Ok(moment) => {
                    known = asked.filter(|_| moment == seen);
                    seen = moment;
                }
                Err(fault) => {
                    *heard.newest() = Some(Err(fault));
                    std::thread::sleep(AGAIN);
                }
            }
        }
    });
}

type Screen = Terminal<CrosstermBackend<Stdout>>;

struct Session {
    desk: Arc<dyn Desk>,
    begun: Instant,
    outcomes: (Sender<Outcome>, Receiver<Outcome>),
    taken: Taken,
    left: bool,
}

impl Session {
    fn go(&mut self, terminal: &mut Screen, state: &mut State, heard: &Heard, signals: &Signalled) -> io::Result<()> {
        self.throw_away(state)?;
        let mut last = Instant::now();
        let mut drawn: Option<u64> = None;
        while !self.left {
            state.tick(now(), self.at());
            if signals.ends.load(Ordering::Relaxed) {
                break;
            }
            if signals.stops.swap(false, Ordering::Relaxed) {
                self.suspend(terminal, state)?;
                drawn = None;
            }
            if signals.goes_on.swap(false, Ordering::Relaxed) {
                Taken::enter()?;
                terminal.clear()?;
                self.was_away(state)?;
                drawn = None;
            }
            if last.elapsed() > AWAY {
                self.was_away(state)?;
            }
            last = Instant::now();
            if let Some(newest) = heard.newest().take() {
                state.renew(newest);
                drawn = None;
            }
            while let Ok(outcome) = self.outcomes.1.try_recv() {
                state.outcome(outcome);
                drawn = None;
            }
            // What counts down is drawn every second.
            if drawn != Some(state.now.0 / 1000) {
                self.show(terminal, state)?;
                drawn = Some(state.now.0 / 1000);
            }
            if event::poll(BEAT)? {
                drawn = None;
                self.take_keys(terminal, state)?;
            }
        }
        Ok(())
    }

    fn at(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn show(&self, terminal: &mut Screen, state: &mut State) -> io::Result<()> {
        terminal.autoresize()?;
        let size = terminal.size()?;
        state.resize(size.width, size.height);
        terminal.draw(|frame| draw(frame, state))?;
        state.tick(now(), self.at());
        state.drawn();
        Ok(())
    }

    /// Takes the keys that are there, until one of them has laid something above what was to be seen.
    fn take_keys(&mut self, terminal: &mut Screen, state: &mut State) -> io::Result<()> {
        for _ in 0..BURST {
            match event::read()? {
                Event::Key(key) => {
                    if let Some(key) = self.key_of(&key) {
                        let before = state.layers.len();
                        let effects = keys::key(state, key);
                        let laid = state.layers.len() > before;
                        for effect in effects {
                            self.carry_out(effect, terminal, state)?;
                        }
                        if laid && !matches!(state.top(), Some(Layer::Entry(_))) {
                            self.show(terminal, state)?;
                            self.throw_away(state)?;
                            return Ok(());
                        }
                    }
                }
                Event::Paste(text) => keys::paste(state, &text),
                Event::Resize(..) | Event::FocusGained | Event::FocusLost | Event::Mouse(_) => {}
            }
            if self.left || !event::poll(Duration::ZERO)? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Throws away what has been typed; that keys are down is kept in mind.
    fn throw_away(&mut self, state: &mut State) -> io::Result<()> {
        while event::poll(Duration::ZERO)? {
            if let Event::Key(key) = event::read()?
                && let Some(key) = self.key_of(&key)
            {
                state.pressed.note(&key);
                self.left |= key.code == Code::Ctrl('c');
            }
        }
        Ok(())
    }

    fn was_away(&mut self, state: &mut State) -> io::Result<()> {
        state.was_away();
        self.throw_away(state)
    }

    fn key_of(&self, key: &KeyEvent) -> Option<Key> {
        if key.kind == KeyEventKind::Release {
            return None;
        }
        let with = |modifier| key.modifiers.contains(modifier);
        let code = match key.code {
            KeyCode::Char(character) if with(KeyModifiers::CONTROL) => Code::Ctrl(character.to_ascii_lowercase()),
            KeyCode::Char(_) if with(KeyModifiers::ALT) => return None,
            KeyCode::Char(character) => Code::Char(character),
            KeyCode::Enter => Code::Enter,
            KeyCode::Esc => Code::Esc,
            KeyCode::Tab => Code::Tab,
            KeyCode::BackTab => Code::BackTab,
            KeyCode::Backspace => Code::Backspace,
            KeyCode::Up => Code::Up,
            KeyCode::Down => Code::Down,
            KeyCode::Left => Code::Left,
            KeyCode::Right => Code::Right,
            KeyCode::PageUp => Code::PageUp,
            KeyCode::PageDown => Code::PageDown,
            KeyCode::Home => Code::Home,
            KeyCode::End => Code::End,
            _ => return None,
        };
        Some(Key {
            code,
            at: self.at(),
            held: key.kind == KeyEventKind::Repeat,
        })
    }

    fn carry_out(&mut self, effect: Effect, terminal: &mut Screen, state: &mut State) -> io::Result<()> {
        match effect {
            Effect::Quit => self.left = true,
            Effect::Suspend => return self.suspend(terminal, state),
            other => {
                let (desk, by, tell) = (Arc::clone(&self.desk), state.by.clone(), self.outcomes.0.clone());
                // The desk may take its time, and the screen goes on.
                std::thread::spawn(move || {
                    if let Some(outcome) = ask(desk.as_ref(), other, &by) {
                        let _ = tell.send(outcome);
                    }
                });
            }
        }
        Ok(())
    }

    /// Leaves the screen to the shell until it lets this go on.
    fn suspend(&mut self, terminal: &mut Screen, state: &mut State) -> io::Result<()> {
        let _ = &self.taken;
        Taken::give_back();
        signal_hook::low_level::emulate_default_handler(SIGTSTP)?;
        Taken::enter()?;
        terminal.clear()?;
        self.was_away(state)
    }
}

/// Has the desk do it.
fn ask(desk: &dyn Desk, effect: Effect, by: &Approver) -> Option<Outcome> {
    Some(match effect {
        Effect::Answer { question, answer, said } => Outcome::Answered {
            question,
            said,
            result: desk.answer(question, &answer, by),
        },
        Effect::Narrow(grant, terms) => Outcome::Narrowed(desk.narrow(grant, &terms)),
        Effect::Revoke(grant) => Outcome::Revoked(grant, desk.revoke(grant)),
        Effect::End(task) => Outcome::Ended(task, desk.end(task)),
        Effect::Suspend | Effect::Quit => return None,
    })
}
