//! Walks through a parsed line and takes down what it does.

use bailiwick_gate::Start;
use bailiwick_model::{AbsPath, Command};
use brush_parser::ast::{
    self, Assignment, AssignmentName, AssignmentValue, CommandPrefixOrSuffixItem, CompoundCommand, CompoundList,
    ExtendedTestExpr, IoFileRedirectKind, IoFileRedirectTarget, IoRedirect, Pipeline, PipelineOperator,
    SeparatorOperator, SimpleCommand,
};
use brush_parser::{Parser, ParserOptions};

use super::own::{BUILTINS, Input, does_more, inner_lines, says};
use super::words::{OPEN, Read, may_hold_lines, read, read_document};
use super::{MAX_PARTS, Part, Place, too_much};
use crate::Grammars;

pub(crate) struct Walk<'a> {
    grammars: &'a Grammars,
    place: &'a Place,
    pub parts: Vec<Part>,
    /// What the line has set so far, for all that follows.
    variables: Vec<(String, String)>,
    functions: Vec<String>,
    /// The folder that the line is in; none where that is known at run time only.
    directory: Option<String>,
}

impl<'a> Walk<'a> {
    pub fn new(grammars: &'a Grammars, place: &'a Place) -> Self {
        Self {
            grammars,
            place,
            parts: Vec::new(),
            variables: Vec::new(),
            functions: Vec::new(),
            directory: Some(place.directory.clone()),
        }
    }

    /// Walks through what runs in a shell of its own: a folder that is entered there is left behind it.
    fn apart(&mut self, walk: impl FnOnce(&mut Self)) {
        let (directory, functions) = (self.directory.clone(), self.functions.clone());
        walk(self);
        (self.directory, self.functions) = (directory, functions);
    }

    /// Walks through what may run, or not, or often: a folder that is entered there may be entered or not.
    fn perhaps(&mut self, walk: impl FnOnce(&mut Self)) {
        let (directory, functions) = (self.directory.clone(), self.functions.clone());
        walk(self);
        self.functions = functions;
        if self.directory != directory {
            self.directory = None;
        }
    }

    fn unread(&mut self, why: impl Into<String>) {
        self.parts.push(Part::Unread(why.into()));
    }

    /// Reads a text as a line.
    pub fn text(&mut self, text: &str, depth: usize) {
        let why = too_much(text).or((depth == 0).then_some("lines stand in lines too deep"));
        if let Some(why) = why {
            return self.unread(why);
        }
        if text.trim().is_empty() {
            return;
        }
        // The parser wants its last line ended, a here-document's above all.
        let ended = format!("{text}\n");
        let mut parser = Parser::new(ended.as_bytes(), &ParserOptions::default());
        match parser.parse_program() {
            Err(_) => self.unread("the line is none that this shell reads"),
            Ok(program) => {
                for list in &program.complete_commands {
                    self.list(list, depth);
                }
            }
        }
    }

    fn list(&mut self, list: &CompoundList, depth: usize) {
        for item in &list.0 {
            for (place, (operator, pipeline)) in item.0.iter().enumerate() {
                let functions = self.functions.len();
                let own = pipeline.seq.len() > 1 || matches!(item.1, SeparatorOperator::Async);
                match operator {
                    _ if own => self.apart(|walk| walk.pipeline(pipeline, depth)),
                    PipelineOperator::And => self.pipeline(pipeline, depth),
                    PipelineOperator::Or => self.perhaps(|walk| walk.pipeline(pipeline, depth)),
                }
                // What is defined behind `&&` may not be.
                if place > 0 {
                    self.functions.truncate(functions);
                }
            }
        }
    }

    fn pipeline(&mut self, pipeline: &Pipeline, depth: usize) {
        let mut input = Input::None;
        for command in &pipeline.seq {
            if self.parts.len() > MAX_PARTS {
                return;
            }
            let said = self.command(command, input, depth);
            input = said.map_or(Input::Open, Input::Text);
        }
    }

    /// Takes a command down; what it says on its output, where that is written out.
    fn command(&mut self, command: &ast::Command, input: Input, depth: usize) -> Option<String> {
        match command {
            ast::Command::Simple(simple) => return self.simple(simple, input, depth),
            ast::Command::Compound(compound, redirects) => {
                match compound {
                    CompoundCommand::BraceGroup(_) => self.compound(compound, depth),
                    CompoundCommand::Subshell(_) | CompoundCommand::Coprocess(_) => {
                        self.apart(|walk| walk.compound(compound, depth));
                    }
                    _ => self.perhaps(|walk| walk.compound(compound, depth)),
                }
                self.redirects(redirects.iter().flat_map(|list| &list.0), depth);
            }
            ast::Command::Function(function) => {
                self.functions.push(function.fname.value.clone());
                self.perhaps(|walk| walk.compound(&function.body.0, depth));
                self.redirects(function.body.1.iter().flat_map(|list| &list.0), depth);
            }
            ast::Command::ExtendedTest(test, redirects) => {
                self.test(&test.expr, depth);
                self.redirects(redirects.iter().flat_map(|list| &list.0), depth);
            }
        }
        None
    }

    fn compound(&mut self, compound: &CompoundCommand, depth: usize) {
        match compound {
            CompoundCommand::Arithmetic(arithmetic) => self.arithmetic(&arithmetic.expr.value),
            CompoundCommand::ArithmeticForClause(clause) => {
                let all = [&clause.initializer, &clause.condition, &clause.updater];
                all.into_iter().flatten().for_each(|expr| self.arithmetic(&expr.value));
                self.list(&clause.body.list, depth);
            }
            CompoundCommand::BraceGroup(group) => self.list(&group.list, depth),
            CompoundCommand::Subshell(shell) => {
                // What is set in there is gone behind it; to keep it is the stricter.
                self.list(&shell.list, depth);
            }
            CompoundCommand::ForClause(clause) => {
                for word in clause.values.iter().flatten() {
                    self.word(&word.value, depth);
                }
                self.assign(&clause.variable_name, OPEN);
                self.list(&clause.body.list, depth);
            }
            CompoundCommand::CaseClause(clause) => {
                self.word(&clause.value.value, depth);
                for case in &clause.cases {
                    for pattern in &case.patterns {
                        self.word(&pattern.value, depth);
                    }
                    if let Some(list) = &case.cmd {
                        self.list(list, depth);
                    }
                }
            }
            CompoundCommand::IfClause(clause) => {
                self.list(&clause.condition, depth);
                self.list(&clause.then, depth);
                for other in clause.elses.iter().flatten() {
                    if let Some(condition) = &other.condition {
                        self.list(condition, depth);
                    }
                    self.list(&other.body, depth);
                }
            }
            CompoundCommand::WhileClause(clause) | CompoundCommand::UntilClause(clause) => {
                self.list(&clause.0, depth);
                self.list(&clause.1.list, depth);
            }
            CompoundCommand::Coprocess(coprocess) => {
                self.command(&coprocess.body, Input::Open, depth);
            }
        }
    }

    fn arithmetic(&mut self, text: &str) {
        if may_hold_lines(text) {
            self.unread("a calculation holds a line");
        }
    }

    fn test(&mut self, test: &ExtendedTestExpr, depth: usize) {
        match test {
            ExtendedTestExpr::And(one, other) | ExtendedTestExpr::Or(one, other) => {
                self.test(one, depth);
                self.test(other, depth);
            }
            ExtendedTestExpr::Not(inner) | ExtendedTestExpr::Parenthesized(inner) => self.test(inner, depth),
            ExtendedTestExpr::UnaryTest(_, word) => {
                self.word(&word.value, depth);
            }
            ExtendedTestExpr::BinaryTest(_, one, other) => {
                self.word(&one.value, depth);
                self.word(&other.value, depth);
            }
        }
    }

    /// Reads a word, and the lines in it.
    fn word(&mut self, word: &str, depth: usize) -> Read {
        let read = read(word, &self.place.home);
        self.lines_of(&read, depth);
        read
    }

    fn lines_of(&mut self, read: &Read, depth: usize) {
        if read.odd {
            self.unread("a word holds what is not understood");
        }
        for line in &read.lines {
            self.apart(|walk| walk.text(line, depth.saturating_sub(1)));
        }
    }

    fn assign(&mut self, name: &str, value: &str) {
        self.variables.retain(|(known, _)| known != name);
        self.variables.push((name.to_owned(), value.to_owned()));
    }

    /// The variables that an assignment sets: an array's are known at run time only.
    fn assignment(&mut self, assignment: &Assignment, depth: usize) -> (String, String) {
        let name = match &assignment.name {
            AssignmentName::VariableName(name) => name.clone(),
            AssignmentName::ArrayElementName(name, index) => {
                self.arithmetic(index);
                name.clone()
            }
        };
        let value = match &assignment.value {
            AssignmentValue::Scalar(word) => self.word(&word.value, depth).text,
            AssignmentValue::Array(elements) => {
                for (key, value) in elements {
                    if let Some(key) = key {
                        self.word(&key.value, depth);
                    }
                    self.word(&value.value, depth);
                }
                OPEN.to_owned()
            }
        };
        (
            name,
            if assignment.append {
                format!("{OPEN}{value}")
            } else {
                value
            },
        )
    }

    fn simple(&mut self, simple: &SimpleCommand, mut input: Input, depth: usize) -> Option<String> {
        let mut words: Vec<Read> = Vec::new();
        let mut set = Vec::new();
        let prefix = simple.prefix.iter().flat_map(|prefix| &prefix.0);
        let suffix = simple.suffix.iter().flat_map(|suffix| &suffix.0);
        let name = simple
            .word_or_name
            .as_ref()
            .map(|word| CommandPrefixOrSuffixItem::Word(word.clone()));
        for (before, item) in prefix
            .map(|item| (true, item))
            .chain(name.iter().map(|item| (false, item)))
            .chain(suffix.map(|item| (false, item)))
        {
            match item {
                CommandPrefixOrSuffixItem::Word(word) => {
                    let read = self.word(&word.value, depth);
                    words.push(read);
                }
                CommandPrefixOrSuffixItem::AssignmentWord(assignment, _) if before => {
                    let pair = self.assignment(assignment, depth);
                    set.push(pair);
                }
                CommandPrefixOrSuffixItem::AssignmentWord(assignment, _) => {
                    let (name, value) = self.assignment(assignment, depth);
                    let open = value.contains(OPEN);
                    // `export A=b` sets it for all that follows; so may any other word be taken.
                    self.assign(&name, &value);
                    words.push(Read {
                        text: format!("{name}={value}"),
                        open,
                        ..Read::default()
                    });
                }
                CommandPrefixOrSuffixItem::ProcessSubstitution(_, shell) => {
                    self.list(&shell.list, depth.saturating_sub(1));
                    words.push(Read {
                        text: "/dev/fd/63".into(),
                        ..Read::default()
                    });
                }
                CommandPrefixOrSuffixItem::IoRedirect(redirect) => {
                    if let Some(text) = self.redirect(redirect, depth) {
                        input = text;
                    }
                }
            }
        }
        if words.is_empty() {
            for (name, value) in set {
                self.assign(&name, &value);
            }
            return None;
        }
        // What a function of the line does was taken down where it is written.
        if words.first().is_some_and(|word| self.functions.contains(&word.text)) {
            return None;
        }
        self.start(words, set, input, depth)
    }

    /// Takes down a command of these words.
    fn start(&mut self, words: Vec<Read>, set: Vec<(String, String)>, input: Input, depth: usize) -> Option<String> {
        let (first, rest) = words.split_first()?;
        if first.open {
            self.unread("which program starts is known at run time only");
            return None;
        }
        let plain = |words: &[Read]| -> Option<String> {
            let known = words.iter().all(|word| !word.open);
            known.then(|| {
                words
                    .iter()
                    .map(|word| word.text.as_str())
                    .collect::<Vec<_>>()
                    .join(" ")
            })
        };
        match first.text.as_str() {
            "eval" | "trap" => {
                let dashes = rest.iter().take_while(|word| word.text.starts_with('-')).count();
                let rest = rest.get(dashes..).unwrap_or(&[]);
                let line = if first.text == "eval" {
                    rest
                } else {
                    rest.get(..1).unwrap_or(&[])
                };
                self.builtin(&words);
                match plain(line) {
                    Some(line) => self.text(&line, depth.saturating_sub(1)),
                    None => self.unread(format!("what `{}` runs is known at run time only", first.text)),
                }
                return None;
            }
            "source" | "." => {
                self.builtin(&words);
                self.unread(format!("what the file of `{}` does is not read", first.text));
                return None;
            }
            "exec" | "command" | "builtin" | "nohup" if rest.iter().all(|word| word.text.starts_with('-')) => {
                self.builtin(&words);
                return None;
            }
            "exec" | "command" | "builtin" => {
                let after = rest.iter().position(|word| !word.text.starts_with('-')).unwrap_or(0);
                let options: String = rest.iter().take(after).map(|word| word.text.as_str()).collect();
                let inner = rest.get(after..).unwrap_or(&[]).to_vec();
                if options.contains(['a', 'p']) {
                    self.unread(format!("`{}` with options finds programs in another way", first.text));
                }
                // `command -v x` says where it is.
                if first.text == "command" && options.contains(['v', 'V']) {
                    self.builtin(&words);
                    return None;
                }
                return self.start(inner, set, input, depth);
            }
            name if BUILTINS.contains(&name) => {
                self.builtin(&words);
                self.sets(name, rest);
                if let Some(why) = does_more(name, rest) {
                    self.unread(why);
                }
                return says(name, rest).filter(|_| set.is_empty());
            }
            _ => {}
        }
        let texts = words.iter().map(|word| word.text.clone()).collect();
        let mut variables = self.variables.clone();
        variables.retain(|(name, _)| !set.iter().any(|(own, _)| own == name));
        variables.extend(set);
        let other_path = variables.iter().any(|(name, _)| name == "PATH");
        let here = self.directory.clone().unwrap_or_default();
        let mut start = Start::named(texts, variables, &here);
        // In another list of folders a name may be another program.
        start.own |= other_path && !start.called.contains('/');
        let mut command = self.grammars.command(&start);
        let open = words.iter().filter(|word| word.open).count();
        if open > 0 {
            command = self
                .grammars
                .with_open_words(command, open, words.iter().any(|word| word.many));
        }
        let lines = inner_lines(&command, &input);
        self.parts.push(Part::Start(command));
        for line in lines {
            match line {
                Ok(line) => self.text(&line, depth.saturating_sub(1)),
                Err(why) => self.unread(why),
            }
        }
        None
    }

    /// A command of the shell itself.
    fn builtin(&mut self, words: &[Read]) {
        let words: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
        self.parts.push(Part::Builtin(Command::taken_for(&words)));
    }

    /// What a command of the shell itself sets for all that follows.
    fn sets(&mut self, name: &str, rest: &[Read]) {
        let names = rest.iter().filter(|word| !word.text.starts_with('-'));
        match name {
            "cd" | "pushd" | "popd" => {
                let to = names.collect::<Vec<_>>();
                let known = to.first().filter(|word| to.len() == 1 && !word.open && name == "cd");
                let here = self.directory.take();
                self.directory = match (known, here, to.is_empty()) {
                    (_, _, true) if name == "cd" => Some(self.place.home.clone()),
                    (Some(word), _, _) if word.text.starts_with('/') => Some(word.text.clone()),
                    (Some(word), Some(here), _) => Some(format!("{here}/{}", word.text)),
                    _ => None,
                };
            }
            "read" | "getopts" | "printf" if name != "printf" || rest.first().is_some_and(|word| word.text == "-v") => {
                names.for_each(|word| self.assign(&word.text, OPEN));
            }
            "export" | "declare" | "typeset" | "readonly" | "local" => {
                for (name, value) in names.filter_map(|word| word.text.split_once('=')) {
                    self.assign(name, value);
                }
            }
            _ => {}
        }
    }

    fn redirects<'r>(&mut self, all: impl Iterator<Item = &'r IoRedirect>, depth: usize) {
        for redirect in all {
            self.redirect(redirect, depth);
        }
    }

    /// Takes a redirection down; the input that it gives.
    fn redirect(&mut self, redirect: &IoRedirect, depth: usize) -> Option<Input> {
        match redirect {
            IoRedirect::File(_, kind, target) => {
                let writes = match kind {
                    IoFileRedirectKind::Read | IoFileRedirectKind::DuplicateInput => false,
                    IoFileRedirectKind::Write
                    | IoFileRedirectKind::Append
                    | IoFileRedirectKind::ReadAndWrite
                    | IoFileRedirectKind::Clobber
                    | IoFileRedirectKind::DuplicateOutput => true,
                };
                match target {
                    IoFileRedirectTarget::Fd(_) => return None,
                    IoFileRedirectTarget::ProcessSubstitution(_, shell) => {
                        self.list(&shell.list, depth.saturating_sub(1));
                    }
                    IoFileRedirectTarget::Filename(word) => self.file(&word.value, writes, depth),
                    IoFileRedirectTarget::Duplicate(word) => {
                        let number = word.value.trim_end_matches('-');
                        if !number.bytes().all(|byte| byte.is_ascii_digit()) {
                            self.file(&word.value, writes, depth);
                        }
                        return None;
                    }
                }
                (!writes).then_some(Input::Open)
            }
            IoRedirect::OutputAndError(word, _) => {
                self.file(&word.value, true, depth);
                None
            }
            IoRedirect::HereString(_, word) => {
                let read = self.word(&word.value, depth);
                Some(if read.open { Input::Open } else { Input::Text(read.text) })
            }
            IoRedirect::HereDocument(_, document) if document.requires_expansion => {
                let read = read_document(&document.doc.value);
                self.lines_of(&read, depth);
                Some(if read.open { Input::Open } else { Input::Text(read.text) })
            }
            IoRedirect::HereDocument(_, document) => Some(Input::Text(document.doc.value.clone())),
        }
    }

    fn file(&mut self, word: &str, writes: bool, depth: usize) {
        let read = self.word(word, depth);
        if read.open {
            return self.unread("which file is redirected is known at run time only");
        }
        let whole = match &self.directory {
            _ if read.text.starts_with('/') => read.text.clone(),
            Some(here) => format!("{here}/{}", read.text),
            None => return self.unread("in which folder a redirection lies is known at run time only"),
        };
        let Ok(path) = AbsPath::new(&whole) else {
            return self.unread("a redirection names no file");
        };
        let path = path.as_str();
        let harmless = [
            "/dev/null",
            "/dev/stdin",
            "/dev/stdout",
            "/dev/stderr",
            "/dev/tty",
            "/dev/zero",
        ];
        if harmless.contains(&path) || path.starts_with("/dev/fd/") {
            return;
        }
        if path.starts_with("/dev/tcp/") || path.starts_with("/dev/udp/") {
            return self.unread("a redirection is a connection");
        }
        self.parts.push(if writes {
            Part::Write(path.into())
        } else {
            Part::Read(path.into())
        });
    }
}
