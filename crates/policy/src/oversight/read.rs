//! Reads `[oversight]`.
//!
//! Promises: P4 (hours that never open, days that there are not, a zone that nobody knows: an error at its place), P13
//! (what the kernel holds once it is granted has no hours of its own and cannot be watched: refused, with what can be had).

use bailiwick_model::{Layer, ResourcePattern, Verb, VerbPattern, Verdict};
use toml_edit::{Item, TableLike, Value};

use super::{Approvers, Closed, Days, Hours, Named, Timed, Window, Zone};
use crate::diagnostic::{Severity, Span, suggest};
use crate::document::{Reader, article, kind};
use crate::judge::judge;
use crate::rule::Rule;
use crate::settings::seconds_of;

/// The keys of the table.
const KEYS: &[&str] = &["zone", "hours", "present", "four_eyes", "approvers", "escalate"];

/// The keys of a table of hours.
const HOURS_KEYS: &[&str] = &["on", "open", "zone", "except", "before_close"];

/// How hours are written.
const HOURS_HINT: &str = "write days, times and a zone: `\"Mon-Fri 08:00-16:00 Europe/Zurich\"`; times alone hold every day, and may go over midnight";

/// Longest name of a person.
const LONGEST_NAME: usize = 64;

/// What keeps a name for a person from being one.
pub fn is_name(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '@');
    !name.is_empty() && name.len() <= LONGEST_NAME && name.chars().all(fits) && !name.starts_with(['-', '.'])
}

/// What an act is wanted for here, which says whether files can be among them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Decided each time, at that time.
    EachTime,
    /// Asked about, which files can be, one by one.
    Asked,
    /// What somebody may say yes to.
    Role,
}

/// One text of hours, taken apart.
struct Written {
    windows: Vec<Window>,
    zone: Option<String>,
}

impl Written {
    /// Reads `[DAYS] TIMES [ZONE]`.
    fn parse(text: &str) -> Option<Self> {
        let (mut days, mut windows, mut zone) = (None, Vec::new(), None);
        for word in text.split_whitespace() {
            let word = word.trim_end_matches(',');
            if zone.is_some() {
                return None;
            } else if word.contains(':') {
                let on = days.unwrap_or(Days::ALL);
                for times in word.split(',') {
                    windows.push(Window::parse(on, times)?);
                }
            } else if let (Some(read), None, true) = (Days::parse(word), days, windows.is_empty()) {
                days = Some(read);
            } else {
                zone = Some(word.to_owned());
            }
        }
        (!windows.is_empty()).then_some(Self { windows, zone })
    }
}

impl Reader<'_> {
    /// `[oversight]`.
    pub fn oversight(&mut self, table: &dyn TableLike) {
        let zone = table.get("zone").and_then(|item| self.zone(item));
        for (key, item) in table.iter() {
            let span = table.key(key).and_then(|key| key.span());
            match key {
                "zone" => {}
                "hours" => self.all_hours(item, zone.as_ref()),
                "present" => {
                    let rules = self.overseen(item, "present", Wanted::EachTime);
                    self.file.settings.oversight.present.extend(rules);
                }
                "four_eyes" => {
                    let rules = self.overseen(item, "four_eyes", Wanted::Asked);
                    self.file.settings.oversight.four_eyes.extend(rules);
                }
                "approvers" => {
                    let named = self.people(item, "approvers");
                    self.approvers().named.extend(named);
                }
                "escalate" => self.table(item, "oversight.escalate", span.clone(), |reader, table| {
                    reader.escalate(table, span);
                }),
                other => self.unknown(other, span, KEYS),
            }
        }
        let own = self.file.settings.oversight.approvers.get(&self.layer);
        if own.is_some_and(|own| own.named.is_empty() && !own.escalate.is_empty()) {
            let span = table.key("escalate").and_then(|key| key.span());
            let hint = "name those who are asked at once: `approvers = [\"dana\"]`";
            self.error(span, "`escalate` comes after nobody", Some(hint.into()));
        }
    }

    fn approvers(&mut self) -> &mut Approvers {
        let layer: Layer = self.layer;
        self.file.settings.oversight.approvers.entry(layer).or_default()
    }

    fn zone(&mut self, item: &Item) -> Option<Zone> {
        let (name, span) = self.text_of(item, "zone")?;
        self.zone_named(&name, span)
    }

    fn zone_named(&mut self, name: &str, span: Option<Span>) -> Option<Zone> {
        let zone = Zone::named(name);
        if zone.is_none() {
            let all: Vec<String> = Zone::all().collect();
            let known: Vec<&str> = all.iter().map(String::as_str).collect();
            let near = crate::diagnostic::nearest(name, &known);
            let hint = near.map_or_else(
                || "write a name of the IANA database, as in `Europe/Zurich` or `UTC`".to_owned(),
                |near| format!("did you mean `{near}`?"),
            );
            self.error(span, &format!("`{name}` is not a time zone"), Some(hint));
        }
        zone
    }

    /// `hours`: a text, a table, or a list of both. The texts of a list are one condition: open in any of them.
    fn all_hours(&mut self, item: &Item, zone: Option<&Zone>) {
        let mut texts = Vec::new();
        match item {
            Item::Value(Value::Array(array)) => {
                for value in array {
                    match value {
                        Value::String(text) => texts.push((text.value().clone(), value.span())),
                        Value::InlineTable(table) => self.table_of_hours(table, value.span(), zone),
                        other => {
                            let message = format!("hours cannot be {}", article(other.type_name()));
                            self.error(other.span(), &message, Some(HOURS_HINT.into()));
                        }
                    }
                }
                if array.is_empty() {
                    self.error(
                        item.span(),
                        "`hours` is empty: it would never be open",
                        Some(HOURS_HINT.into()),
                    );
                }
            }
            Item::Value(Value::String(text)) => texts.push((text.value().clone(), item.span())),
            Item::ArrayOfTables(tables) => {
                for table in tables {
                    self.table_of_hours(table, table.span(), zone);
                }
            }
            other => match other.as_table_like() {
                Some(table) => self.table_of_hours(table, other.span(), zone),
                None => self.error(
                    other.span(),
                    &format!("hours cannot be {}", kind(other)),
                    Some(HOURS_HINT.into()),
                ),
            },
        }
        let span = texts.first().and_then(|(_, span)| span.clone());
        if let Some((windows, zone)) = self.windows(&texts, zone) {
            let hours = Hours {
                zone,
                windows,
                except: Vec::new(),
                before_close: 0,
            };
            self.timed(Vec::new(), hours, span);
        }
    }

    /// The windows of one condition, which must be of one zone; none for none, or where something is wrong with one.
    fn windows(&mut self, texts: &[(String, Option<Span>)], zone: Option<&Zone>) -> Option<(Vec<Window>, Zone)> {
        let (mut windows, mut of) = (Vec::new(), None::<Zone>);
        let mut sound = !texts.is_empty();
        for (text, span) in texts {
            let Some(written) = Written::parse(text) else {
                self.error(span.clone(), &format!("`{text}` are no hours"), Some(HOURS_HINT.into()));
                sound = false;
                continue;
            };
            let own = match &written.zone {
                Some(name) => self.zone_named(name, span.clone()),
                None if zone.is_none() => {
                    let hint = "add it, as in `\"Mon-Fri 08:00-16:00 Europe/Zurich\"`, or once for all: `zone = \"Europe/Zurich\"`";
                    self.error(
                        span.clone(),
                        &format!("`{text}` says not in which time zone"),
                        Some(hint.into()),
                    );
                    None
                }
                None => zone.cloned(),
            };
            match (own, &of) {
                (None, _) => sound = false,
                (Some(own), Some(of)) if own != *of => {
                    let hint = "write one zone, or make two tables of them, which both hold";
                    let message = format!("hours of `{}` and of `{}` stand in one list", of.name(), own.name());
                    self.error(span.clone(), &message, Some(hint.into()));
                    sound = false;
                }
                (Some(own), _) => of = Some(own),
            }
            windows.extend(written.windows);
        }
        of.filter(|_| sound).map(|zone| (windows, zone))
    }

    fn table_of_hours(&mut self, table: &dyn TableLike, span: Option<Span>, zone: Option<&Zone>) {
        let own = table.get("zone").and_then(|item| self.zone(item));
        let zone = own.as_ref().or(zone);
        let (mut on, mut except, mut before_close) = (Vec::new(), Vec::new(), 0);
        let mut texts = Vec::new();
        for (key, item) in table.iter() {
            let key_span = table.key(key).and_then(|key| key.span());
            match key {
                "zone" => {}
                "on" => {
                    on = self.overseen(item, "on", Wanted::EachTime);
                    if item.as_array().is_some_and(toml_edit::Array::is_empty) {
                        let hint = "name acts, as in `on = [\"run touch night\"]`, or take the key out: then all acts are meant";
                        self.error(item.span(), "`on` names nothing", Some(hint.into()));
                    }
                }
                "open" => match item.as_str() {
                    Some(text) => texts.push((text.to_owned(), item.span())),
                    None => texts = self.texts_of(item, "open"),
                },
                "except" => except = self.closed(item),
                "before_close" => match item.as_str().and_then(seconds_of) {
                    Some(seconds) => before_close = seconds,
                    None => {
                        let hint = "write `before_close = \"2 h\"`: minutes (`min`) or hours (`h`), at most 24 h";
                        self.error(item.span(), "`before_close` is not a length of time", Some(hint.into()));
                    }
                },
                other => self.unknown(other, key_span, HOURS_KEYS),
            }
        }
        if !table.contains_key("open") {
            let hint =
                "add `open = \"Mon-Fri 08:00-16:00 Europe/Zurich\"`; for closed days alone `open = \"00:00-24:00 …\"`";
            return self.error(span, "a table of hours has no `open`", Some(hint.into()));
        }
        if table.contains_key("on") && on.is_empty() {
            // What was meant could not be read, and has been complained about: it must not come to mean everything.
            return;
        }
        let Some((windows, zone)) = self.windows(&texts, zone) else {
            return;
        };
        let hours = Hours {
            zone,
            windows,
            except,
            before_close,
        };
        self.timed(on, hours, span);
    }

    fn closed(&mut self, item: &Item) -> Vec<Closed> {
        let hint = "write days, dates or spans of dates: `[\"Sat-Sun\", \"2026-12-24..2027-01-02\", \"08-01\"]`";
        let Some(array) = item.as_array() else {
            let message = format!("`except` must be a list, not {}", kind(item));
            self.error(item.span(), &message, Some(hint.into()));
            return Vec::new();
        };
        let mut found = Vec::new();
        for value in array {
            // A date may be written as one of TOML's own.
            let text = value
                .as_datetime()
                .map(ToString::to_string)
                .or_else(|| value.as_str().map(str::to_owned));
            let shown = value.to_string();
            match text.as_deref().and_then(Closed::parse) {
                Some(closed) => found.push(closed),
                None => {
                    let message = format!("`{}` is no day, date or span of dates", shown.trim().trim_matches('"'));
                    self.error(value.span(), &message, Some(hint.into()));
                }
            }
        }
        found
    }

    fn timed(&mut self, on: Vec<Rule>, hours: Hours, span: Option<Span>) {
        if let Some(problem) = never_open(&hours) {
            let hint = "widen the hours, or take an exception out";
            return self.error(span, problem, Some(hint.into()));
        }
        let place = self.place(span.as_ref());
        let origin = bailiwick_model::RuleRef {
            layer: self.layer,
            file: self.name.into(),
            line: place.line,
            column: place.column,
            act: hours.to_string(),
        };
        self.file.settings.oversight.timed.push(Timed { on, hours, origin });
    }

    /// A list of acts.
    pub(crate) fn overseen(&mut self, item: &Item, key: &str, wanted: Wanted) -> Vec<Rule> {
        let mut found = Vec::new();
        for (text, span) in self.texts_of(item, key) {
            found.extend(self.overseen_act(&text, span, wanted));
        }
        found
    }

    fn overseen_act(&mut self, text: &str, span: Option<Span>, wanted: Wanted) -> Vec<Rule> {
        let act = match self.whole_act(text) {
            Ok(act) => act,
            Err((message, hint)) => {
                self.error(span, &message, hint);
                return Vec::new();
            }
        };
        let is_file = matches!(act.resource, ResourcePattern::Path(_));
        if is_file && wanted == Wanted::EachTime {
            let hint = "hours of the whole context hold for files too; single folders can be asked about: `[files] ask`, or `four_eyes`";
            let message = format!("`{text}`: files in a tree that is granted are not decided about one by one");
            self.error(span, &message, Some(hint.into()));
            return Vec::new();
        }
        let only_looks_up = act.verb == VerbPattern::One(Verb::Resolve);
        if only_looks_up && wanted != Wanted::Role {
            let hint = "name the requests or the tunnel, as in `* https://host/**`";
            self.error(span, &format!("`{text}` only looks a name up"), Some(hint.into()));
            return Vec::new();
        }
        // A folder that is asked about must be one that can be.
        let effect = match wanted {
            Wanted::Asked if is_file => Verdict::Ask,
            Wanted::EachTime | Wanted::Asked | Wanted::Role => Verdict::Deny,
        };
        if let Err(objection) = judge(effect, &act, text) {
            self.error(span, &objection.message, objection.hint);
            return Vec::new();
        }
        let origin = self.origin(span.as_ref(), &act);
        // Found as a deny finds it, in all its spellings; a role is as narrow as an allow.
        let like = match wanted {
            Wanted::EachTime | Wanted::Asked => Verdict::Deny,
            Wanted::Role => Verdict::Allow,
        };
        Rule::written(like, act, &origin, None, self.reading)
    }

    /// Names of people, or tables that say what each may answer.
    fn people(&mut self, item: &Item, key: &str) -> Vec<Named> {
        let mut found = Vec::new();
        match item {
            Item::Value(Value::Array(array)) => {
                for value in array {
                    match value {
                        Value::String(text) => found.extend(self.person(text.value(), value.span(), Vec::new())),
                        Value::InlineTable(table) => found.extend(self.role(table, value.span())),
                        other => {
                            let message = format!("an approver cannot be {}", article(other.type_name()));
                            self.error(other.span(), &message, None);
                        }
                    }
                }
                if array.is_empty() {
                    let hint = "name somebody, or take the key out";
                    self.error(item.span(), &format!("`{key}` names nobody"), Some(hint.into()));
                }
            }
            Item::ArrayOfTables(tables) => {
                for table in tables {
                    found.extend(self.role(table, table.span()));
                }
            }
            other => {
                let hint = format!("write `{key} = [\"dana\", {{ name = \"theo\", may = [\"run git push\"] }}]`");
                let message = format!("`{key}` must be a list of names, not {}", kind(other));
                self.error(other.span(), &message, Some(hint));
            }
        }
        found
    }

    fn role(&mut self, table: &dyn TableLike, span: Option<Span>) -> Option<Named> {
        let (mut name, mut may) = (None, Vec::new());
        for (key, item) in table.iter() {
            let key_span = table.key(key).and_then(|key| key.span());
            match key {
                "name" => name = self.text_of(item, "name"),
                "may" => may = self.overseen(item, "may", Wanted::Role),
                other => self.unknown(other, key_span, &["name", "may"]),
            }
        }
        let Some((name, name_span)) = name else {
            if !table.contains_key("name") {
                self.error(span, "an approver has no `name`", Some("add `name = \"theo\"`".into()));
            }
            return None;
        };
        if table.contains_key("may") && may.is_empty() {
            let wrong = self.diagnostics.iter().any(|one| one.severity == Severity::Error);
            if !wrong {
                self.error(span, &format!("`{name}` may answer about nothing"), None);
            }
            return None;
        }
        self.person(&name, name_span, may)
    }

    fn person(&mut self, name: &str, span: Option<Span>, may: Vec<Rule>) -> Option<Named> {
        if is_name(name) {
            return Some(Named { name: name.into(), may });
        }
        let hint = "the name of a Unix user, or one that `bailiwick approver add` was given: letters, digits, `-`, `_`, `.`, `@`";
        self.error(
            span,
            &format!("`{name}` is not the name of an approver"),
            Some(hint.into()),
        );
        None
    }

    fn escalate(&mut self, table: &dyn TableLike, span: Option<Span>) {
        let (mut after, mut to) = (None, Vec::new());
        for (key, item) in table.iter() {
            let key_span = table.key(key).and_then(|key| key.span());
            match (key, item.as_str().and_then(seconds_of)) {
                ("after", Some(seconds)) => after = Some(seconds),
                ("after", None) => {
                    let hint = "write `after = \"5 min\"`: seconds (`s`), minutes (`min`) or hours (`h`), at most 24 h";
                    self.error(item.span(), "`after` is not a length of time", Some(hint.into()));
                    after = Some(0);
                }
                ("to", _) => to = self.people(item, "to"),
                (other, _) => {
                    let hint = suggest(other, &["after", "to"]);
                    self.error(key_span, &format!("`{other}` is not a known key"), Some(hint));
                }
            }
        }
        match after {
            Some(after) if table.contains_key("to") => {
                let later = to.into_iter().map(|named| (after, named));
                self.approvers().escalate.extend(later);
            }
            _ => {
                let hint = "write `escalate = { after = \"5 min\", to = [\"theo\"] }`";
                self.error(span, "`escalate` needs both `after` and `to`", Some(hint.into()));
            }
        }
    }
}

/// Some days after which every week has come round, in any zone: what is not open in all of that time never is.
fn never_open(hours: &Hours) -> Option<&'static str> {
    use bailiwick_model::Millis;
    // Exceptions by date pass; those by days of the week do not.
    let weekly = Hours {
        except: hours
            .except
            .iter()
            .filter(|closed| matches!(closed, Closed::Days(_)))
            .copied()
            .collect(),
        ..hours.clone()
    };
    let from = Millis(1_750_000_000_000);
    let opens = weekly.is_open(from) || weekly.opens_at(from).is_some();
    (!opens).then_some("these hours are never open")
}
