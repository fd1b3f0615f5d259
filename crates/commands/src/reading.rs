//! From a start to its normal forms: who the program is, how its words read, what they carry.
//!
//! Promises: P5 (a renamed, copied or linked program is the same to a deny), P4 (a program that the agent may have made
//! has no name that an allow could go by; what is too long is cut, and counts as unread).
//! Not here: grammars (`grammar`), what variables steer (`steering`).

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};

use bailiwick_gate::{Reading, Start};
use bailiwick_model::{Command, CommandPattern, NormalForm, ProgramPattern, Resource, words_of};

use crate::carried::carried;
use crate::grammar::{Carries, GrammarFault, Program, programs, shipped, shipped_carriers};
use crate::{argv, steering};

/// Most bytes of words that are kept of one command, over all its normal forms; what needs an escape counts six times.
const MAX_WORDS: usize = 16 * 1024;
/// Most normal forms of one command.
const MAX_FORMS: usize = 12;
/// Most commands that follow from one.
const MAX_STARTED: usize = 256;
/// How deep commands may carry each other.
const MAX_DEPTH: usize = 6;

/// All grammars, with the variables that the task began with.
#[derive(Debug, Clone)]
pub struct Grammars {
    /// The person's own, which go before those that are shipped.
    own: Vec<Program>,
    base: HashMap<String, String>,
}

impl Grammars {
    /// The shipped grammars. `base` are the variables that the task begins with: set so, they steer nothing.
    pub fn shipped(base: Vec<(String, String)>) -> Self {
        Self {
            own: Vec::new(),
            base: base.into_iter().collect(),
        }
    }

    /// Adds the tables of one file: they go before what is there already.
    pub fn with(mut self, file: &str, text: &str) -> Result<Self, GrammarFault> {
        let mut own = programs(file, text)?;
        own.append(&mut self.own);
        self.own = own;
        Ok(self)
    }

    fn of(&self, name: &str) -> Option<&Program> {
        let own = self.own.iter().find(|program| program.is_called(name));
        own.or_else(|| shipped(name))
    }

    /// Brings a start to its normal forms.
    pub fn command(&self, start: &Start) -> Command {
        let mut forms = Vec::new();
        let mut left = MAX_WORDS;
        self.add(start, false, MAX_DEPTH, &mut left, &mut forms);
        Command::of(forms).unwrap_or_else(|| Command::plain(start.words.clone(), &start.called))
    }

    /// Marks a command of which this many words are known at run time only. As the value of an option such a word does
    /// no harm; elsewhere it may be any, so that the forms count as unread.
    pub(crate) fn with_open_words(&self, command: Command, open: usize, many: bool) -> Command {
        command.map(|mut form| {
            let values = form.options.iter().filter_map(|given| given.value.as_ref());
            let harmless = values.filter(|value| value.contains('\u{fffd}')).count();
            if many || harmless < open {
                form.cut = true;
                form.read_only = false;
            }
            form
        })
    }

    fn add(&self, start: &Start, against: bool, depth: usize, left: &mut usize, forms: &mut Vec<NormalForm>) {
        if forms.len() >= MAX_FORMS || depth == 0 {
            // What is carried deeper than that is not read: no allow covers the launcher's words then.
            if let Some(last) = forms.last_mut() {
                last.cut = true;
            }
            return;
        }
        let undashed = self.undashed(start);
        // A file of the machine's that a table knows by its own name is that, also where it is the same file as another: one
        // file may be a hundred programs.
        let itself = !start.own && (self.of(file_name(&start.called)).is_some() || undashed.is_some());
        let start = &match itself && !start.like.is_empty() {
            true => Cow::Owned(Start {
                like: Vec::new(),
                ..start.clone()
            }),
            false => Cow::Borrowed(start),
        };
        let mut form = self.identify(start, left);
        form.only_against = against;
        let given = form.words.first().map_or("", |word| file_name(word)).to_owned();
        let (file, called) = (file_name(&start.file), file_name(&start.called));
        // A program of many names is the one that it is called by in its first word.
        let many = [file, called]
            .into_iter()
            .find_map(|name| self.of(name))
            .filter(|program| program.level.carries == Some(Carries::Applet) && !program.is_called(&given));
        let by = [called, file].into_iter().chain([given.as_str()]);
        let by = by.chain(start.like.iter().map(|path| file_name(path)));
        let mut grammars: Vec<&Program> = Vec::new();
        for program in by.filter_map(|name| self.of(name)) {
            if !grammars.iter().any(|known| std::ptr::eq(*known, program)) {
                grammars.push(program);
            }
        }
        if many.is_some() {
            grammars.retain(|program| program.level.carries != Some(Carries::Applet));
            if !start.own {
                form.licensed.insert(given.clone());
            }
            grammars.sort_by_key(|program| !program.is_called(&given));
        }
        // A grammar that only a word or a likeness leads to says what the program may be, never what it is.
        let sure = |program: &&Program| many.is_some() || program.is_called(called) || program.is_called(file);
        let others: Vec<&Program> = grammars.iter().copied().skip_while(sure).collect();
        let first = grammars.into_iter().find(sure);
        self.read(first, form.clone(), start, against, depth, left, forms);
        for program in others {
            self.read(Some(program), form.clone(), start, true, depth, left, forms);
        }
        if let Some(whole) = undashed {
            self.add(&whole, true, depth.saturating_sub(1), left, forms);
        }
    }

    /// `git-push x` as the program and its subcommand.
    fn undashed(&self, start: &Start) -> Option<Start> {
        let given = start.words.first().map_or("", |word| file_name(word));
        let names = [file_name(&start.called), file_name(&start.file), given];
        let (program, subcommand) = names.into_iter().find_map(|name| {
            let parts = name.match_indices('-').filter_map(|(at, _)| name.split_at_checked(at));
            let mut parts = parts.filter_map(|(head, rest)| Some((head, rest.strip_prefix('-')?)));
            parts.find(|(head, rest)| {
                let program = self.of(head).filter(|program| program.dashed);
                program.is_some_and(|program| program.level.subcommand(rest).is_some())
            })
        })?;
        let rest = start.words.iter().skip(1).cloned();
        let words = [program.to_owned(), subcommand.to_owned()]
            .into_iter()
            .chain(rest)
            .collect();
        Some(Start::named(words, start.variables.clone(), &start.directory))
    }

    #[expect(clippy::too_many_arguments, reason = "the state of one walk, handed down")]
    fn read(
        &self,
        program: Option<&Program>,
        mut form: NormalForm,
        start: &Start,
        against: bool,
        depth: usize,
        left: &mut usize,
        forms: &mut Vec<NormalForm>,
    ) {
        form.only_against = against;
        form.steering = steering::steering(program, &start.variables, &self.base);
        for (_, value) in &mut form.steering {
            if value.len() > 1024 {
                *value = value.chars().take(1024).chain(['…']).collect();
            }
        }
        let Some(program) = program else {
            form.guess();
            forms.push(form);
            return;
        };
        let found = argv::read(program, &mut form);
        let carried = carried(&form, found, start);
        let comes_to = comes_to(program, &form, start);
        forms.push(form);
        if let Some(other) = comes_to {
            self.add(&other, true, depth.saturating_sub(1), left, forms);
        }
        for carried in carried {
            let first = forms.len();
            let against = against || carried.only_against;
            self.add(&carried.start, against, depth.saturating_sub(1), left, forms);
            // A word that is added later may look like an option.
            for form in forms.iter_mut().skip(first).filter(|_| carried.open) {
                form.cut = true;
                form.read_only = false;
            }
        }
    }

    /// Who the program is.
    fn identify(&self, start: &Start, left: &mut usize) -> NormalForm {
        let mut form = NormalForm::default();
        for word in &start.words {
            let cost = word.chars().map(|c| {
                if c.is_control() || c == '"' || c == '\\' {
                    6
                } else {
                    c.len_utf8()
                }
            });
            let cost = cost.sum::<usize>().saturating_add(4);
            if cost > *left {
                form.cut = true;
                break;
            }
            *left = left.saturating_sub(cost);
            form.words.push(word.clone());
        }
        if form.words.is_empty() {
            form.words.push(start.called.chars().take(256).collect());
        }
        let given = form.words.first().map_or("", |word| file_name(word)).to_owned();
        let (file, called) = (file_name(&start.file), file_name(&start.called));
        let names = [file, called, &given]
            .into_iter()
            .chain(start.like.iter().map(|path| file_name(path)));
        form.names = names.filter(|name| !name.is_empty()).map(Into::into).collect();
        let others = [file, called]
            .into_iter()
            .filter_map(|name| Some(self.of(name)?.also(name)));
        let others = others.flatten().filter(|name| !name.contains('*'));
        form.names.extend(others.cloned());
        form.paths = [&start.file, &start.called]
            .into_iter()
            .filter_map(|path| absolute(path, &start.directory))
            .collect();
        if !start.own {
            form.licensed = [file, called]
                .into_iter()
                .filter(|name| !name.is_empty())
                .map(Into::into)
                .collect();
        }
        form
    }

    /// The normal forms of a line of plain words, for examples of tables.
    pub(crate) fn forms_of(&self, line: &str) -> Vec<NormalForm> {
        let Ok(words) = words_of(line) else {
            return Vec::new();
        };
        let command = self.command(&Start::typed(words, "/"));
        let mut forms = command.forms().to_vec();
        for form in &mut forms {
            form.words.truncate(1);
            form.options
                .sort_by(|one, other| (&one.names, &one.value).cmp(&(&other.names, &other.value)));
            form.unknown.sort_unstable();
            form.effects = bailiwick_model::Effects::default();
        }
        forms
    }

    /// True when a line of plain words only reads, in all its normal forms.
    pub(crate) fn only_reads(&self, line: &str) -> bool {
        let forms = words_of(line).map(|words| self.command(&Start::typed(words, "/")));
        forms.is_ok_and(|command| command.forms().iter().all(|form| form.read_only || form.only_against))
    }
}

impl Grammars {
    /// What the tables say that a command starts by itself.
    fn started_by(&self, pattern: &CommandPattern) -> Vec<CommandPattern> {
        // A file at a place of its own is not the program of that name.
        let ProgramPattern::Name(name) = &pattern.program else {
            return Vec::new();
        };
        let Some(program) = self.of(name) else {
            return Vec::new();
        };
        let mut texts = program.level.starts.clone();
        let mut level = &program.level;
        for word in pattern.words.iter().filter(|word| !word.starts_with('-')) {
            match level.subcommand(word) {
                Some((_, inner)) => {
                    texts.extend(inner.starts.iter().cloned());
                    level = inner;
                }
                None => break,
            }
        }
        // What a whole program may do is what any of its subcommands may.
        if std::ptr::eq(level, &program.level) {
            let inner = program.level.subcommands.values();
            texts.extend(inner.flat_map(|inner| inner.starts.iter().cloned()));
        }
        let nowhere = bailiwick_model::Anchors {
            root: None,
            home: bailiwick_model::AbsPath::root(),
        };
        let read = |text: &String| CommandPattern::parse(text, &nowhere).ok();
        texts.iter().filter_map(read).collect()
    }
}

impl Reading for Grammars {
    fn read(&self, start: &Start) -> Resource {
        Resource::Command(self.command(start))
    }

    fn follows(&self, pattern: &CommandPattern) -> Vec<CommandPattern> {
        let mut all: Vec<CommandPattern> = Vec::new();
        let mut next = vec![pattern.clone()];
        // What is started starts others, and each is taken once.
        while let Some(pattern) = next.pop() {
            for started in self.started_by(&pattern) {
                if all.len() < MAX_STARTED && !all.contains(&started) {
                    all.push(started.clone());
                    next.push(started);
                }
            }
        }
        all
    }

    fn also(&self, name: &str) -> BTreeSet<String> {
        let Some(program) = self.of(name) else {
            return BTreeSet::new();
        };
        let others = program.also(name).iter().flat_map(|name| written_out(name));
        let subcommands = program.level.subcommands.keys().flat_map(|names| names.split(' '));
        let dashed = subcommands
            .filter(|_| program.dashed)
            .map(|own| format!("{name}-{own}"));
        others.chain(dashed).collect()
    }

    fn carriers(&self) -> BTreeSet<String> {
        let without_start = [Carries::Applet, Carries::File, Carries::Script];
        let carries = |program: &&Program| {
            program
                .level
                .carries
                .is_some_and(|carries| without_start.contains(&carries))
        };
        let own = self
            .own
            .iter()
            .filter(carries)
            .flat_map(|program| program.names.iter().cloned());
        let names = own.chain(shipped_carriers().map(str::to_owned));
        let names = names.flat_map(|name| written_out(&name));
        names.chain(LOADERS.iter().map(|path| (*path).to_owned())).collect()
    }
}

/// A name, or where it ends with a number the names that there may be: `python3.12`.
fn written_out(name: &str) -> Vec<String> {
    match name.split_once('*') {
        Some((head, "")) if head.ends_with('.') => (0..40).map(|number| format!("{head}{number}")).collect(),
        Some(_) => Vec::new(),
        None => vec![name.to_owned()],
    }
}

/// The same command under the subcommand that it comes to: `git send-pack` is `git push`.
fn comes_to(program: &Program, form: &NormalForm, start: &Start) -> Option<Start> {
    let spelled = form.subcommand.first()?;
    let (_, level) = program.level.subcommand(spelled.first()?)?;
    let other = level.is.as_ref()?;
    let given = form.options.iter().flat_map(|given| &given.names).chain(&form.unknown);
    if given.into_iter().any(|name| level.unless.contains(name)) {
        return None;
    }
    let mut words = start.words.clone();
    let place = words.iter_mut().skip(1).find(|word| spelled.contains(word))?;
    place.clone_from(other);
    if let Some(first) = words.first_mut() {
        *first = program.names.first()?.clone();
    }
    Some(Start::named(words, start.variables.clone(), &start.directory))
}

/// The dynamic linkers: they lie in no `PATH`, and a copy of one is found by where it lies.
const LOADERS: [&str; 8] = [
    "/lib64/ld-linux-x86-64.so.2",
    "/lib/ld-linux-aarch64.so.1",
    "/lib/ld-linux.so.2",
    "/lib/ld-linux-armhf.so.3",
    "/lib/ld-linux-riscv64-lp64d.so.1",
    "/lib64/ld64.so.2",
    "/lib/ld-musl-x86_64.so.1",
    "/lib/ld-musl-aarch64.so.1",
];

fn file_name(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or("");
    // A login shell is called `-bash`.
    name.strip_prefix('-').filter(|rest| !rest.is_empty()).unwrap_or(name)
}

fn absolute(path: &str, directory: &str) -> Option<String> {
    let whole = match path {
        "" => return None,
        path if path.starts_with('/') => path.to_owned(),
        path if path.contains('/') => format!("{directory}/{path}"),
        _ => return None,
    };
    bailiwick_model::AbsPath::new(&whole)
        .ok()
        .map(|path| path.as_str().to_owned())
}

#[cfg(test)]
mod tests;
