//! Who people are, whom they report to, and what they are responsible for: what `[relations]` reads.
//!
//! Promises: P4 (an id that is not known, a name twice, a circle of reports: an error, or no match).
//! Trust: the source is one that a person named; ids in calls are the agent's. The text is handed in, with its time.
//! Not here: fetching it (the program), what rules say of it (`tool`).

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::str::FromStr;
use std::sync::Arc;

use bailiwick_model::Millis;
use cedar_policy::{Entity, EntityId, EntityTypeName, EntityUid, RestrictedExpression};
use serde_json::Value;
use toml_edit::TableLike;

use crate::diagnostic::{Place, Severity, Span};
use crate::document::Reader;
use crate::load::{Loader, SourceFile};
use crate::renewal::own_address;
use crate::settings::seconds_of;
use crate::tool::shape::Kind;

/// What `[relations]` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelationsFrom {
    /// `file:PATH`, or a URL.
    pub from: String,
    /// The id of the person for whom tasks run; found by the name of the user where nothing is said.
    pub me: Option<String>,
    /// After how many seconds what was read is too old.
    pub stale_after: Option<u64>,
    /// How often it is read anew while a task runs, in seconds.
    pub refresh: Option<u64>,
}

/// What stood at the place that `[relations]` names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelationsText {
    /// Its text, under its name.
    pub file: SourceFile,
    /// When it was read.
    pub read_at: Millis,
    /// The user name of the principal.
    pub user: String,
}

impl Reader<'_> {
    /// `[relations]`.
    pub fn relations(&mut self, table: &dyn TableLike, span: Option<Span>) {
        let (mut from, mut me, mut stale_after, mut refresh) = (None, None, None, None);
        for (key, item) in table.iter() {
            let at = table.key(key).and_then(|key| key.span());
            match key {
                "from" => from = self.text_of(item, key),
                "me" => me = self.text_of(item, key).map(|(text, _)| text),
                "stale_after" => match item.as_str().and_then(seconds_of) {
                    Some(seconds) => stale_after = Some(seconds),
                    None => {
                        let hint = "write `stale_after = \"1 h\"`: seconds (`s`), minutes (`min`) or hours (`h`), at most 24 h";
                        self.error(item.span(), "`stale_after` is not a length of time", Some(hint.into()));
                    }
                },
                "refresh" => match item.as_str().and_then(seconds_of) {
                    Some(seconds) => refresh = Some((seconds, item.span())),
                    None => {
                        let hint =
                            "write `refresh = \"10 min\"`: seconds (`s`), minutes (`min`) or hours (`h`), at most 24 h";
                        self.error(item.span(), "`refresh` is not a length of time", Some(hint.into()));
                    }
                },
                other => self.unknown(other, at, &["from", "me", "stale_after", "refresh"]),
            }
        }
        let hint = "write `from = \"file:people.toml\"`, or the address of a text of JSON";
        let Some((from, at)) = from else {
            if !table.contains_key("from") {
                self.error(span, "`relations` says not where they stand", Some(hint.into()));
            }
            return;
        };
        let file = from
            .strip_prefix("file:")
            .is_some_and(|path| path.ends_with(".toml") || path.ends_with(".json"));
        if !file
            && let Err((message, hint)) = own_address(&from)
            && from.contains("://")
        {
            return self.error(at, &message, Some(hint.into()));
        }
        if !file && !from.contains("://") {
            return self.error(
                at,
                &format!("`{from}` is no file of TOML or JSON, and no `https` address"),
                Some(hint.into()),
            );
        }
        if let (Some((seconds, at)), Some(stale)) = (&refresh, stale_after)
            && *seconds >= stale
        {
            let hint = "read it more often than it gets too old";
            let message = "`refresh` is not less than `stale_after`: what is known would be too old at times";
            return self.error(at.clone(), message, Some(hint.into()));
        }
        self.file.settings.relations = Some(RelationsFrom {
            from,
            me,
            stale_after,
            refresh: refresh.map(|(seconds, _)| seconds),
        });
    }
}

/// Largest text, in bytes.
const MAX: usize = 16 << 20;
/// Most steps from somebody up to the one above all.
const DEEPEST: usize = 64;

/// A person.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Person {
    name: String,
    user: String,
    reports_to: Option<String>,
    teams: Vec<String>,
}

/// Something that people are responsible for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Thing {
    kind: String,
    owner: String,
    case_of: String,
}

/// All that is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Relations {
    people: BTreeMap<String, Person>,
    teams: BTreeMap<String, String>,
    things: BTreeMap<String, Thing>,
    /// The id of the person for whom the task runs.
    pub me: Option<String>,
    /// When it was read.
    pub read_at: Millis,
    /// After how many seconds it is too old.
    pub stale_after: Option<u64>,
}

/// Nobody and nothing.
impl Default for Relations {
    fn default() -> Self {
        Self {
            people: BTreeMap::new(),
            teams: BTreeMap::new(),
            things: BTreeMap::new(),
            me: None,
            read_at: Millis(0),
            stale_after: None,
        }
    }
}

impl Relations {
    /// Reads a text of JSON, or of TOML where the source is named so.
    pub fn read(name: &str, text: &str) -> Result<Self, String> {
        if text.len() > MAX {
            return Err(format!("a text of {} bytes is too long", text.len()));
        }
        let whole = if name.ends_with(".toml") {
            let document = toml_edit::Document::parse(text).map_err(|error| error.message().replace('\n', ", "))?;
            of_table(document.as_table())
        } else {
            serde_json::from_str(text).map_err(|error| format!("this is not JSON: {error}"))?
        };
        let mut found = Self::default();
        let Value::Object(tables) = &whole else {
            return Err("`people`, `teams` and `things` are expected".into());
        };
        if let Some(other) = tables
            .keys()
            .find(|key| !["people", "teams", "things"].contains(&key.as_str()))
        {
            return Err(format!("`{other}` is not known: `people`, `teams`, `things` are"));
        }
        for (key, value) in tables {
            let all = value.as_array().ok_or_else(|| format!("`{key}` must be a list"))?;
            for entry in all {
                match key.as_str() {
                    "people" => found.person(entry)?,
                    "teams" => found.team(entry)?,
                    _ => found.thing(entry)?,
                }
            }
        }
        found.whole()
    }

    fn person(&mut self, entry: &Value) -> Result<(), String> {
        let entry = Entry::of(entry, "a person", &["id", "name", "user", "reports_to", "teams"])?;
        let teams = match entry.fields.get("teams") {
            None => Vec::new(),
            Some(Value::Array(all)) => {
                let all = all.iter().map(|team| team.as_str().map(ToOwned::to_owned));
                all.collect::<Option<_>>().ok_or("`teams` must hold ids")?
            }
            Some(_) => return Err("`teams` must be a list".into()),
        };
        let own = Person {
            name: entry.text("name")?.unwrap_or_default(),
            user: entry.text("user")?.unwrap_or_default(),
            reports_to: entry.text("reports_to")?,
            teams,
        };
        let id = entry.id()?;
        match self.people.insert(id.clone(), own) {
            None => Ok(()),
            Some(_) => Err(format!("there are two people `{id}`")),
        }
    }

    fn team(&mut self, entry: &Value) -> Result<(), String> {
        let entry = Entry::of(entry, "a team", &["id", "name"])?;
        let id = entry.id()?;
        match self.teams.insert(id.clone(), entry.text("name")?.unwrap_or_default()) {
            None => Ok(()),
            Some(_) => Err(format!("there are two teams `{id}`")),
        }
    }

    fn thing(&mut self, entry: &Value) -> Result<(), String> {
        let entry = Entry::of(entry, "a thing", &["id", "kind", "owner", "case_of"])?;
        let own = Thing {
            kind: entry.text("kind")?.unwrap_or_default(),
            owner: entry.text("owner")?.unwrap_or_default(),
            case_of: entry.text("case_of")?.unwrap_or_default(),
        };
        let id = entry.id()?;
        match self.things.insert(id.clone(), own) {
            None => Ok(()),
            Some(_) => Err(format!("there are two things `{id}`")),
        }
    }

    /// Holds the parts against each other.
    fn whole(self) -> Result<Self, String> {
        let person = |id: &str| self.people.contains_key(id);
        for (id, own) in &self.people {
            if let Some(above) = own.reports_to.as_deref().filter(|above| !person(above)) {
                return Err(format!("`{id}` reports to `{above}`, who is not among the people"));
            }
            if let Some(team) = own.teams.iter().find(|team| !self.teams.contains_key(*team)) {
                return Err(format!("`{id}` is in `{team}`, which is not among the teams"));
            }
            if self.above(id).is_none() {
                return Err(format!(
                    "`{id}` reports to somebody who reports to `{id}`, or over more than {DEEPEST} others"
                ));
            }
        }
        let mut users = BTreeSet::new();
        for own in self.people.values().filter(|own| !own.user.is_empty()) {
            if !users.insert(&own.user) {
                return Err(format!("there are two people with the user `{}`", own.user));
            }
        }
        for (id, own) in &self.things {
            for other in [&own.owner, &own.case_of] {
                if !other.is_empty() && !person(other) {
                    return Err(format!("`{id}` names `{other}`, who is not among the people"));
                }
            }
        }
        Ok(self)
    }

    /// Everybody whom somebody reports to, nearest first; none where that has no end.
    fn above(&self, id: &str) -> Option<Vec<&str>> {
        let mut found = Vec::new();
        let mut here = self.people.get(id);
        while let Some(above) = here.and_then(|person| person.reports_to.as_deref()) {
            if above == id || found.len() >= DEEPEST {
                return None;
            }
            found.push(above);
            here = self.people.get(above);
        }
        Some(found)
    }

    /// True when anything is known at all.
    pub fn is_read(&self) -> bool {
        *self != Self::default()
    }

    /// Says who the task runs for: the id that the rules name, else the person with this user name.
    pub fn mine(&mut self, id: Option<&str>, user: Option<&str>) -> Result<(), String> {
        self.me = match id {
            Some(id) if self.people.contains_key(id) => Some(id.to_owned()),
            Some(id) => return Err(format!("`me` is `{id}`, who is not among the people")),
            None => {
                let mut people = self.people.iter();
                let own = people.find(|(_, person)| Some(person.user.as_str()) == user.filter(|user| !user.is_empty()));
                own.map(|(id, _)| id.clone())
            }
        };
        Ok(())
    }

    /// What an id names, where it is known.
    pub fn uid(&self, kind: Kind, id: &str) -> Option<EntityUid> {
        let known = match kind {
            Kind::Person => self.people.contains_key(id),
            Kind::Team => self.teams.contains_key(id),
            Kind::Thing => self.things.contains_key(id),
        };
        if known { uid(kind, id) } else { None }
    }

    /// These, and all that they lie in or name, as Cedar's entities.
    pub fn entities(&self, named: &BTreeSet<(Kind, String)>) -> Result<Vec<Entity>, String> {
        let mut wanted: Vec<(Kind, String)> = named.iter().cloned().collect();
        let mut done = BTreeSet::new();
        let mut found = Vec::new();
        while let Some((kind, id)) = wanted.pop() {
            if !done.insert((kind, id.clone())) {
                continue;
            }
            let mut parents = HashSet::new();
            let mut into = |kind, id: &str, wanted: &mut Vec<(Kind, String)>| {
                wanted.push((kind, id.to_owned()));
                parents.extend(uid(kind, id));
            };
            let text = |value: &str| RestrictedExpression::new_string(value.to_owned());
            let mut attributes = vec![("id".to_owned(), text(&id))];
            match kind {
                Kind::Person => {
                    let own = self.people.get(&id).cloned().unwrap_or_default();
                    if let Some(above) = &own.reports_to {
                        into(Kind::Person, above, &mut wanted);
                    }
                    // Not among those above: who reports to somebody in a team is not in it.
                    let teams = own.teams.iter().filter_map(|team| uid(Kind::Team, team));
                    let teams = teams.map(RestrictedExpression::new_entity_uid).collect::<Vec<_>>();
                    attributes.push(("teams".into(), RestrictedExpression::new_set(teams)));
                    wanted.extend(own.teams.iter().map(|team| (Kind::Team, team.clone())));
                    attributes.push(("name".into(), text(&own.name)));
                    attributes.push(("user".into(), text(&own.user)));
                }
                Kind::Team => {
                    let name = self.teams.get(&id).map_or("", String::as_str);
                    attributes.push(("name".into(), text(name)));
                }
                Kind::Thing => {
                    let own = self.things.get(&id).cloned().unwrap_or_default();
                    attributes.push(("kind".into(), text(&own.kind)));
                    for (name, person) in [("owner", own.owner), ("case_of", own.case_of)] {
                        let person_uid = uid(Kind::Person, &person).ok_or("no such type")?;
                        attributes.push((name.into(), RestrictedExpression::new_entity_uid(person_uid)));
                        wanted.push((Kind::Person, person));
                    }
                }
            }
            let own = uid(kind, &id).ok_or("no such type")?;
            let entity = Entity::new(own, attributes.into_iter().collect(), parents);
            found.push(entity.map_err(|error| error.to_string())?);
        }
        Ok(found)
    }
}

impl Loader<'_> {
    /// Who people are, where rules say where that stands; nobody, where it has not been read.
    pub(crate) fn relations(&mut self) -> Option<Arc<Relations>> {
        let from = self.settings.relations.clone()?;
        let Some(text) = &self.sources.relations else {
            return Some(Arc::default());
        };
        let read = Relations::read(&text.file.name, &text.file.text).and_then(|mut relations| {
            relations.mine(from.me.as_deref(), Some(&text.user))?;
            relations.read_at = text.read_at;
            relations.stale_after = from.stale_after;
            Ok(relations)
        });
        match read {
            Ok(relations) => Some(Arc::new(relations)),
            Err(message) => {
                let hint = "correct it, or let `[relations]` point elsewhere";
                self.say(Severity::Error, &text.file.name, Place::START, &message, hint);
                None
            }
        }
    }
}

fn uid(kind: Kind, id: &str) -> Option<EntityUid> {
    let kind = EntityTypeName::from_str(kind.as_str()).ok()?;
    Some(EntityUid::from_type_name_and_id(kind, EntityId::new(id)))
}

/// One entry of a list.
struct Entry<'a> {
    what: &'static str,
    fields: &'a serde_json::Map<String, Value>,
}

impl<'a> Entry<'a> {
    fn of(value: &'a Value, what: &'static str, known: &[&str]) -> Result<Self, String> {
        let fields = value.as_object().ok_or_else(|| format!("{what} must be a table"))?;
        if let Some(key) = fields.keys().find(|key| !known.contains(&key.as_str())) {
            return Err(format!("{what} has no `{key}`"));
        }
        Ok(Self { what, fields })
    }

    /// A text, or a whole number as one.
    fn text(&self, key: &str) -> Result<Option<String>, String> {
        match self.fields.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(Value::Number(number)) if number.is_i64() => Ok(Some(number.to_string())),
            Some(_) => Err(format!("`{key}` of {} must be a text", self.what)),
        }
    }

    fn id(&self) -> Result<String, String> {
        match self.text("id")? {
            Some(id) if !id.is_empty() => Ok(id),
            _ => Err(format!("{} has no `id`", self.what)),
        }
    }
}

/// A table of TOML as JSON.
fn of_table(table: &dyn toml_edit::TableLike) -> Value {
    let mut fields = serde_json::Map::new();
    for (key, item) in table.iter() {
        fields.insert(key.to_owned(), of_item(item));
    }
    Value::Object(fields)
}

fn of_item(item: &toml_edit::Item) -> Value {
    if let Some(table) = item.as_table_like() {
        return of_table(table);
    }
    if let Some(tables) = item.as_array_of_tables() {
        return Value::Array(tables.iter().map(|table| of_table(table)).collect());
    }
    item.as_value().map_or(Value::Null, of_value)
}

fn of_value(value: &toml_edit::Value) -> Value {
    use toml_edit::Value as Toml;
    match value {
        Toml::String(text) => Value::String(text.value().clone()),
        Toml::Integer(number) => Value::from(*number.value()),
        Toml::Boolean(flag) => Value::Bool(*flag.value()),
        Toml::Array(all) => Value::Array(all.iter().map(of_value).collect()),
        Toml::InlineTable(table) => of_table(table),
        // Neither is an id or a name.
        Toml::Float(_) | Toml::Datetime(_) => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEOPLE: &str = r#"
        people = [
            { id = "e-1", name = "Rui", user = "rui", teams = ["hr"] },
            { id = "e-2", name = "Ana", reports_to = "e-1" },
            { id = "e-3", name = "Bo", reports_to = "e-2" },
        ]
        [[teams]]
        id = "hr"
        [[things]]
        id = "r-9"
        kind = "record"
        owner = "e-3"
    "#;

    #[test]
    fn p4_relations_are_read_whole_or_not_at_all() {
        let mut known = Relations::read("people.toml", PEOPLE).unwrap();
        known.mine(None, Some("rui")).unwrap();
        assert_eq!(known.me.as_deref(), Some("e-1"));
        assert!(known.uid(Kind::Person, "e-3").is_some() && known.uid(Kind::Person, "hr").is_none());
        assert_eq!(known.above("e-3"), Some(vec!["e-2", "e-1"]));
        let named = BTreeSet::from([(Kind::Thing, "r-9".to_owned())]);
        let mut ids: Vec<String> = known
            .entities(&named)
            .unwrap()
            .iter()
            .map(|one| one.uid().to_string())
            .collect();
        ids.sort();
        assert_eq!(
            ids,
            [
                "Person::\"\"",
                "Person::\"e-1\"",
                "Person::\"e-2\"",
                "Person::\"e-3\"",
                "Team::\"hr\"",
                "Thing::\"r-9\""
            ]
        );
        assert!(known.clone().mine(Some("e-7"), None).is_err());
        known.mine(None, Some("nobody")).unwrap();
        assert_eq!(known.me, None);
        for wrong in [
            "people = 1",
            "people = [1]",
            "persons = []",
            "people = [{ name = \"x\" }]",
            "people = [{ id = \"\" }]",
            "people = [{ id = \"a\" }, { id = \"a\" }]",
            "people = [{ id = \"a\", reports_to = \"b\" }]",
            "people = [{ id = \"a\", reports_to = \"b\" }, { id = \"b\", reports_to = \"a\" }]",
            "people = [{ id = \"c\", reports_to = \"a\" }, { id = \"a\", reports_to = \"a\" }]",
            "people = [{ id = \"a\", teams = [\"x\"] }]",
            "people = [{ id = \"a\", user = \"u\" }, { id = \"b\", user = \"u\" }]",
            "things = [{ id = \"a\", owner = \"x\" }]",
            "people = [{ id = \"a\", boss = \"x\" }]",
        ] {
            assert!(Relations::read("people.toml", wrong).is_err(), "{wrong}");
        }
        assert!(Relations::read("people.json", r#"{"people": [{"id": 7, "user": "x"}]}"#).is_ok());
        assert!(Relations::read("https://a.test/people", "people = []").is_err());
    }
}
