//! Reads `[state]` and `[login]`: folders of a context's own, and what lies in them from the start.
//!
//! Promises: P2 (a kept folder lies below the home and is another one than the person's), P4.
//! Not here: where they lie outside and how they are made (the program's).

use bailiwick_model::{AbsPath, Act, Layer, PathPattern, ResourcePattern, RuleRef, Verb, VerbPattern, Verdict};
use toml_edit::TableLike;

use crate::diagnostic::Span;
use crate::document::Reader;
use crate::entry::Section;
use crate::rule::{Rule, host_of};
use crate::settings::Login;

/// The keys of `[state]`.
const KEYS: &[&str] = &["keep", "files", "links", "copies"];

impl Reader<'_> {
    /// `[state]`.
    pub fn state(&mut self, table: &dyn TableLike) {
        for (key, item) in table.iter() {
            let span = table.key(key).and_then(|key| key.span());
            match key {
                "keep" => self.rules(item, Verdict::Allow, Section::Keep),
                "files" => self.table(item, "state.files", span, Self::kept_files),
                "links" => self.table(item, "state.links", span, Self::kept_links),
                "copies" => self.table(item, "state.copies", span, Self::kept_copies),
                other => self.unknown(other, span, KEYS),
            }
        }
    }

    fn kept_files(&mut self, table: &dyn TableLike) {
        for (key, item) in table.iter() {
            let span = table.key(key).and_then(|key| key.span());
            if let (Some(path), Some((text, _))) = (self.below_home(key, span), self.text_of(item, key)) {
                self.file.settings.kept_files.insert(path, text);
            }
        }
    }

    fn kept_links(&mut self, table: &dyn TableLike) {
        let links = self.pairs(table);
        self.file.settings.kept_links.extend(links);
    }

    fn kept_copies(&mut self, table: &dyn TableLike) {
        let copies = self.pairs(table);
        self.file.settings.kept_copies.extend(copies);
    }

    /// Places below the home, each with another one.
    fn pairs(&mut self, table: &dyn TableLike) -> Vec<(AbsPath, AbsPath)> {
        let mut pairs = Vec::new();
        for (key, item) in table.iter() {
            let span = table.key(key).and_then(|key| key.span());
            let Some((text, to_span)) = self.text_of(item, key) else {
                continue;
            };
            if let (Some(path), Some(to)) = (self.below_home(key, span), self.below_home(&text, to_span)) {
                pairs.push((path, to));
            }
        }
        pairs
    }

    /// `[login]` of a shipped profile. With it comes the folder of the login that contexts share.
    pub fn login(&mut self, table: &dyn TableLike, span: Option<Span>) {
        let agent = self.name.strip_prefix("profile:").unwrap_or(self.name).to_owned();
        let place = format!("~/.local/share/bailiwick/logins/{agent}");
        let Some(place) = self.below_home(&place, span.clone()) else {
            return;
        };
        let mut login = Login {
            agent,
            place: place.clone(),
            command: Vec::new(),
            files: Vec::new(),
            hosts: Vec::new(),
        };
        for (key, item) in table.iter() {
            let span = table.key(key).and_then(|key| key.span());
            match key {
                "command" => login.command = self.texts_of(item, key).into_iter().map(|(word, _)| word).collect(),
                "files" => {
                    for (text, span) in self.texts_of(item, key) {
                        login.files.extend(self.below_home(&text, span));
                    }
                }
                "hosts" => {
                    let before = self.file.rules.len();
                    self.rules(item, Verdict::Allow, Section::Tunnel);
                    self.file.login_rules = self.file.rules.split_off(before);
                    let hosts = self.file.login_rules.iter().filter_map(|rule| host_of(rule.act()));
                    login.hosts = hosts.cloned().collect();
                    login.hosts.dedup();
                }
                other => self.unknown(other, span, &["command", "files", "hosts"]),
            }
        }
        let at = self.place(span.as_ref());
        let act = Act {
            verb: VerbPattern::One(Verb::Keep),
            resource: ResourcePattern::Path(PathPattern::tree(&place)),
        };
        let origin = RuleRef {
            layer: self.layer,
            file: self.name.into(),
            line: at.line,
            column: at.column,
            act: act.to_string(),
        };
        let why = "the agent's login, which contexts share";
        self.file
            .rules
            .extend(Rule::written(Verdict::Allow, act, &origin, Some(why), self.reading));
        self.file.settings.login = Some(login);
    }

    /// One path below the home, without wildcards.
    fn below_home(&mut self, text: &str, span: Option<Span>) -> Option<AbsPath> {
        let path = self.anchors.path(text).ok().and_then(|pattern| pattern.as_tree());
        let path = path.filter(|path| self.anchors.home.holds(path) && *path != self.anchors.home);
        if path.is_none() {
            let hint = Some("write it as in `~/.cache/x`".into());
            self.error(span, &format!("`{text}` is not one place below the home"), hint);
        }
        path
    }

    /// What is wrong with keeping a folder at this place, if anything is.
    pub fn keeps_wrongly(&self, path: &AbsPath) -> Option<(String, String)> {
        let home = &self.anchors.home;
        if !home.holds(path) {
            let hint = "name a folder below the home, as in `~/.cache`".into();
            return Some((format!("`{path}` cannot be kept: it lies outside the home"), hint));
        }
        // A ceiling may say that anything in the home may be kept.
        (path == home && self.layer == Layer::Context && !self.shipped).then(|| {
            let hint = "name the folders in it that are to outlive a task".into();
            ("the whole home cannot be kept".to_owned(), hint)
        })
    }
}
