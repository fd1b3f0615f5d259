//! Reads one rule file: keys, values and where they stand.
//!
//! Promises: P4 (an unknown key, a wrong type, a key this build cannot keep is an error with its place).
//! Trust: a project's file may hold any text. It is read whole; nothing in it takes hold before a person trusts it.
//! Not here: what a single rule means (`entry`), which files there are (`load`), files of other tools (`foreign`).

use bailiwick_gate::Reading;
use bailiwick_model::{Act, Anchors, Layer, Millis, RuleRef, Verdict};
use toml_edit::{Item, TableLike, Value};

use crate::diagnostic::{Diagnostic, Place, Severity, Span, suggest};
use crate::entry::Section;
use crate::foreign;
use crate::rule::Rule;
use crate::settings::Settings;
use crate::tag::TagNamed;
use crate::tool::written::ToolTable;

/// Most bytes of one rule file.
const MAX: usize = 4 << 20;

/// The keys at the top of a file.
pub(crate) const TOP: &[&str] = &[
    "context",
    "extends",
    "files",
    "network",
    "commands",
    "allow",
    "ask",
    "deny",
    "environment",
    "devices",
    "git",
    "fence",
    "limits",
    "profiles",
    "oversight",
    "approver",
    "questions",
    "state",
    "broker",
    "secret",
    "server",
    "tool",
    "relations",
    "tag",
];

/// Keys of the format that this build cannot keep: what is missing, and what can be done meanwhile.
const LATER: &[(&str, &str, &str)] = &[(
    "budget",
    "a budget stands in a rule",
    "put it into the table of a rule or of a `[[tool]]`",
)];

/// What one file says.
#[derive(Debug, Default)]
pub(crate) struct RuleFile {
    /// Names of presets, with where they stand.
    pub extends: Vec<(String, Place)>,
    /// Programs that a profile is for.
    pub program: Vec<String>,
    /// Files by which a toolchain's profile is recognized in a project.
    pub marks: Vec<String>,
    /// True for a preset with which toolchains reach their registries.
    pub registries: bool,
    /// True for the preset with which an agent signs in, and reaches nothing else.
    pub sign_in: bool,
    /// What of the network an agent is granted to sign in.
    pub login_rules: Vec<Rule>,
    /// Profiles that stand in place of those that were recognized; none when they are not named.
    pub profiles: Option<Vec<(String, Place)>>,
    /// Its rules with all that follows from them.
    pub rules: Vec<Rule>,
    /// Its settings.
    pub settings: Settings,
    /// Names of secrets that brokers are handed, with where they stand.
    pub secrets_named: Vec<(String, Place)>,
    /// What is still to be held against what is pinned of tools.
    pub tables: Vec<ToolTable>,
    /// Tags that rules about calls name.
    pub tags_named: Vec<TagNamed>,
    /// True when there is no key in it.
    pub empty: bool,
}

/// Reads one file and collects what is wrong with it.
pub(crate) struct Reader<'a> {
    pub layer: Layer,
    pub name: &'a str,
    pub text: &'a str,
    pub anchors: &'a Anchors,
    /// Reads the commands of examples, and what allowed ones start.
    pub reading: &'a dyn Reading,
    pub diagnostics: Vec<Diagnostic>,
    pub file: RuleFile,
    /// Where the file is shipped with the program, it may say which programs it is for.
    pub shipped: bool,
    /// When a mandate was first used.
    pub first_used: Option<Millis>,
}

impl<'a> Reader<'a> {
    /// Reads a file whole: what it says, and what is wrong with it.
    pub fn read(
        layer: Layer,
        name: &'a str,
        text: &'a str,
        anchors: &'a Anchors,
        reading: &'a dyn Reading,
        shipped: bool,
    ) -> (RuleFile, Vec<Diagnostic>) {
        let mut reader = Self {
            layer,
            name,
            text,
            anchors,
            reading,
            diagnostics: Vec::new(),
            file: RuleFile::default(),
            shipped,
            first_used: None,
        };
        reader.whole();
        (reader.file, reader.diagnostics)
    }

    /// Reads a mandate whole.
    pub fn read_mandate(
        name: &'a str,
        text: &'a str,
        anchors: &'a Anchors,
        reading: &'a dyn Reading,
        first_used: Millis,
    ) -> (RuleFile, Vec<Diagnostic>) {
        let mut reader = Self {
            layer: Layer::Mandate,
            name,
            text,
            anchors,
            reading,
            diagnostics: Vec::new(),
            file: RuleFile::default(),
            shipped: false,
            first_used: Some(first_used),
        };
        reader.file.settings.mandate = Some(crate::mandate::Mandate::default());
        reader.whole();
        (reader.file, reader.diagnostics)
    }

    fn whole(&mut self) {
        let text = self.text;
        if text.len() > MAX {
            return self.error(None, &format!("a rule file of {} bytes is too long", text.len()), None);
        }
        match toml_edit::Document::parse(text) {
            Err(fault) => self.unreadable(&fault),
            Ok(document) => {
                self.file.empty = document.as_table().is_empty();
                self.top(document.as_table());
            }
        }
    }

    pub fn place(&self, span: Option<&Span>) -> Place {
        span.map_or(Place::START, |span| Place::of(self.text, span.start))
    }

    pub fn error(&mut self, span: Option<Span>, message: &str, hint: Option<String>) {
        let place = self.place(span.as_ref());
        self.diagnostics
            .push(Diagnostic::new(Severity::Error, self.name, place, message, hint));
    }

    fn unreadable(&mut self, fault: &toml_edit::TomlError) {
        if let Some((what, place)) = foreign::format_of(self.text) {
            let message = format!("this is {what}, not a rule file of bailiwick");
            let hint = Some("rule files are TOML: `bailiwick init` writes one with comments".into());
            self.diagnostics
                .push(Diagnostic::new(Severity::Error, self.name, place, &message, hint));
            return;
        }
        let message = fault.message().replace('\n', ", ");
        let hint = message
            .contains("duplicate key")
            .then(|| "put both lists into one".into());
        self.error(fault.span(), &format!("this is not TOML: {message}"), hint);
    }

    fn top(&mut self, table: &dyn TableLike) {
        for (key, item) in table.iter() {
            let span = table.key(key).and_then(|key| key.span());
            if let (Layer::Mandate, Some(first_used)) = (self.layer, self.first_used) {
                self.of_mandate(key, item, span, first_used);
                continue;
            }
            match key {
                "context" => self.file.settings.context = self.text_of(item, "context").map(|(name, _)| name),
                "extends" => {
                    for (name, span) in self.texts_of(item, "extends") {
                        let place = self.place(span.as_ref());
                        self.file.extends.push((name, place));
                    }
                }
                "program" if self.shipped => {
                    self.file.program = self
                        .texts_of(item, "program")
                        .into_iter()
                        .map(|(name, _)| name)
                        .collect();
                }
                "marks" if self.shipped => {
                    let marks = self.texts_of(item, "marks");
                    self.file.marks = marks.into_iter().map(|(name, _)| name).collect();
                }
                "registries" if self.shipped => self.file.registries = item.as_bool() == Some(true),
                "sign_in" if self.shipped => self.file.sign_in = item.as_bool() == Some(true),
                "login" if self.shipped => {
                    self.table(item, key, span.clone(), |reader, table| reader.login(table, span))
                }
                "note" if self.shipped => {
                    let note = self.text_of(item, "note");
                    self.file.settings.notes.extend(note.map(|(text, _)| text));
                }
                "profiles" => {
                    let names = self.texts_of(item, "profiles");
                    let placed = names.into_iter().map(|(name, span)| (name, self.place(span.as_ref())));
                    self.file.profiles = Some(placed.collect());
                }
                "state" => self.table(item, key, span, Self::state),
                "allow" => self.rules(item, Verdict::Allow, Section::Top),
                "ask" => self.rules(item, Verdict::Ask, Section::Top),
                "deny" => self.rules(item, Verdict::Deny, Section::Top),
                "files" => self.table(item, key, span, Self::files),
                "network" => self.table(item, key, span, Self::network),
                "commands" => self.table(item, key, span, Self::commands),
                "environment" => self.table(item, key, span, Self::environment),
                "devices" => self.table(item, key, span, Self::devices),
                "git" => self.table(item, key, span, Self::git),
                "fence" => self.table(item, key, span, Self::fence),
                "limits" => self.table(item, key, span, Self::limits),
                "broker" => self.brokers(item, span),
                "server" => self.servers(item, span),
                "tool" => self.tools(item, "tool", span),
                "relations" => self.table(item, key, span.clone(), |reader, table| reader.relations(table, span)),
                "secret" => self.table(item, key, span, Self::secrets),
                "tag" => self.table(item, key, span, Self::tags),
                "questions" => self.table(item, key, span, Self::questions),
                "approver" => self.approver(item, span),
                "oversight" => self.table(item, key, span, Self::oversight),
                other => self.unknown_top(other, span),
            }
        }
    }

    fn unknown_top(&mut self, key: &str, span: Option<Span>) {
        if let Some((_, missing, hint)) = LATER.iter().find(|(known, ..)| *known == key) {
            let message = format!("`{key}`: {missing}, which this build does not have");
            self.error(span, &message, Some((*hint).into()));
        } else if let Some(tool) = foreign::owner_of(key) {
            let hint = "rules of bailiwick stand under `[files]` and `[network]`: `bailiwick init` writes a file with comments";
            self.error(
                span,
                &format!("`{key}` is a key of {tool}, not of bailiwick"),
                Some(hint.into()),
            );
        } else {
            self.unknown(key, span, TOP);
        }
    }

    pub fn unknown(&mut self, key: &str, span: Option<Span>, known: &[&str]) {
        self.error(span, &format!("`{key}` is not a known key"), Some(suggest(key, known)));
    }

    /// Where a rule was written, and as what act.
    pub fn origin(&self, span: Option<&Span>, act: &Act) -> RuleRef {
        let place = self.place(span);
        RuleRef {
            layer: self.layer,
            file: self.name.into(),
            line: place.line,
            column: place.column,
            act: act.to_string(),
        }
    }

    pub fn table(&mut self, item: &Item, key: &str, span: Option<Span>, read: impl FnOnce(&mut Self, &dyn TableLike)) {
        match item.as_table_like() {
            Some(table) => read(self, table),
            None => {
                let hint = Some(format!("write `[{key}]` and its keys below"));
                self.error(span, &format!("`{key}` must be a table, not {}", kind(item)), hint);
            }
        }
    }

    /// A list of tables, `[[key]]` or inline: each is read by itself, with where it stands.
    pub fn list_of_tables(
        &mut self,
        item: &Item,
        key: &str,
        span: Option<Span>,
        read: impl Fn(&mut Self, &dyn TableLike, Option<Span>),
    ) {
        match item {
            Item::ArrayOfTables(tables) => {
                for table in tables {
                    read(self, table, table.span());
                }
            }
            Item::Value(Value::Array(array)) if array.iter().all(Value::is_inline_table) => {
                for table in array.iter().filter_map(Value::as_inline_table) {
                    read(self, table, table.span());
                }
            }
            other => {
                let message = format!("`{key}` must be a list of tables, not {}", kind(other));
                self.error(span, &message, Some(format!("write `[[{key}]]` and its keys below")));
            }
        }
    }

    fn files(&mut self, table: &dyn TableLike) {
        for (key, item) in table.iter() {
            let span = table.key(key).and_then(|key| key.span());
            match key {
                "read" => self.rules(item, Verdict::Allow, Section::Read),
                "write" => self.rules(item, Verdict::Allow, Section::Write),
                "deny" => self.rules(item, Verdict::Deny, Section::AnyFileVerb),
                "ask" => self.rules(item, Verdict::Ask, Section::AnyFileVerb),
                other => self.unknown(other, span, &["read", "write", "deny", "ask"]),
            }
        }
    }

    fn commands(&mut self, table: &dyn TableLike) {
        for (key, item) in table.iter() {
            let span = table.key(key).and_then(|key| key.span());
            match key {
                "allow" => self.rules(item, Verdict::Allow, Section::Commands),
                "ask" => self.rules(item, Verdict::Ask, Section::Commands),
                "deny" => self.rules(item, Verdict::Deny, Section::Commands),
                other => self.unknown(other, span, &["allow", "ask", "deny"]),
            }
        }
    }

    fn git(&mut self, table: &dyn TableLike) {
        for (key, item) in table.iter() {
            let span = table.key(key).and_then(|key| key.span());
            match (key, item.as_bool()) {
                ("unsigned", Some(unsigned)) => self.file.settings.git_unsigned = unsigned,
                ("unsigned", None) => {
                    let hint = Some("write `unsigned = true`".into());
                    self.error(span, &format!("`unsigned` must be yes or no, not {}", kind(item)), hint);
                }
                (other, _) => self.unknown(other, span, &["unsigned"]),
            }
        }
    }

    fn network(&mut self, table: &dyn TableLike) {
        for (key, item) in table.iter() {
            let span = table.key(key).and_then(|key| key.span());
            match key {
                "tunnel" => self.rules(item, Verdict::Allow, Section::Tunnel),
                "allow" => self.rules(item, Verdict::Allow, Section::Network),
                "ask" => self.rules(item, Verdict::Ask, Section::Network),
                "deny" => self.rules(item, Verdict::Deny, Section::Network),
                "private" => self.private(item),
                "hosts" => self.table(item, "network.hosts", span, Self::hosts),
                "publish" => self.publish(item, span),
                "roots" => self.roots(item, span),
                other => {
                    let known = ["tunnel", "allow", "ask", "deny", "private", "hosts", "publish", "roots"];
                    self.unknown(other, span, &known);
                }
            }
        }
    }

    /// One text.
    pub fn text_of(&mut self, item: &Item, what: &str) -> Option<(String, Option<Span>)> {
        match item.as_str() {
            Some(text) => Some((text.into(), item.span())),
            None => {
                let hint = Some(format!("write `{what} = \"...\"`"));
                self.error(
                    item.span(),
                    &format!("`{what}` must be a text, not {}", kind(item)),
                    hint,
                );
                None
            }
        }
    }

    /// A list of texts.
    pub fn texts_of(&mut self, item: &Item, what: &str) -> Vec<(String, Option<Span>)> {
        let Some(array) = item.as_array() else {
            let hint = Some(format!("write `{what} = [\"...\"]`"));
            self.error(
                item.span(),
                &format!("`{what}` must be a list of texts, not {}", kind(item)),
                hint,
            );
            return Vec::new();
        };
        let mut found = Vec::new();
        for value in array {
            match value.as_str() {
                Some(text) => found.push((text.to_owned(), value.span())),
                None => {
                    let message = format!("`{what}` must hold texts only, not {}", article(value.type_name()));
                    self.error(value.span(), &message, None);
                }
            }
        }
        found
    }
}

/// The kind of a value, as a word with its article.
pub(crate) fn kind(item: &Item) -> &'static str {
    article(item.type_name())
}

pub(crate) fn article(kind: &str) -> &'static str {
    match kind {
        "string" => "a text",
        "integer" | "float" => "a number",
        "boolean" => "yes or no",
        "array" => "a list",
        "array of tables" => "a list of tables",
        "table" | "inline table" => "a table",
        "datetime" => "a date",
        _ => "this",
    }
}
