//! Options, rounds, medians, and the table.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Instant;

use serde_json::{Value, json};

/// What was asked for.
#[derive(Debug, Default)]
pub struct Options {
    /// Fewer rounds and smaller logs: to see that everything runs.
    pub quick: bool,
    /// Only the items whose name holds this word.
    pub only: Option<String>,
    /// Of the gates' items only the ways whose name holds this word, and the direct one.
    pub way: Option<String>,
    /// Where the JSON goes.
    pub json: Option<PathBuf>,
}

impl Options {
    /// Reads the arguments.
    pub fn read(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self::default();
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("`{argument}` needs a value"));
            match argument.as_str() {
                "--quick" => options.quick = true,
                "--only" => options.only = Some(value()?),
                "--way" => options.way = Some(value()?),
                "--json" => options.json = Some(value()?.into()),
                _ => {
                    return Err(format!(
                        "`{argument}` is not known: --quick, --only WORD, --way WORD, --json FILE"
                    ));
                }
            }
        }
        Ok(options)
    }

    /// True when this item is to be measured.
    pub fn wants(&self, item: &str) -> bool {
        self.only.as_ref().is_none_or(|word| item.contains(word.as_str()))
    }

    /// True when a gate's item is to be measured this way.
    pub fn takes(&self, way: &str) -> bool {
        way == "direct" || self.way.as_ref().is_none_or(|word| way.contains(word.as_str()))
    }

    /// The number of rounds: as given, or few.
    pub fn rounds(&self, whole: usize) -> usize {
        if self.quick { whole.div_ceil(10).max(2) } else { whole }
    }
}

/// The program of that name, where the `PATH` has it.
pub fn installed(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let mut places = std::env::split_paths(&path).map(|folder| folder.join(name));
    places.find(|place| place.is_file())
}

/// What a figure counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Milliseconds: less is better.
    Milliseconds,
    /// Microseconds: less is better.
    Microseconds,
    /// How many in a second: more is better.
    PerSecond,
}

impl Unit {
    fn as_str(self) -> &'static str {
        match self {
            Self::Milliseconds => "ms",
            Self::Microseconds => "µs",
            Self::PerSecond => "/s",
        }
    }
}

/// The ways in which a program is run, in the order of the table's columns.
pub const WAYS: [&str; 5] = ["bare", "bwrap", "sandlock", "nono", "ours"];

/// One measured item.
#[derive(Debug)]
struct Row {
    item: String,
    unit: Unit,
    samples: BTreeMap<String, Vec<f64>>,
    faults: BTreeMap<String, String>,
    aim: String,
}

impl Row {
    fn median(&self, way: &str) -> Option<f64> {
        self.samples.get(way).and_then(|samples| median(samples))
    }

    /// The median of what each round says of ours against bare.
    fn against_bare(&self, compare: impl Fn(f64, f64) -> f64) -> Option<f64> {
        let (bare, ours) = (self.samples.get("bare")?, self.samples.get("ours")?);
        let pairs: Vec<f64> = ours
            .iter()
            .zip(bare)
            .map(|(ours, bare)| compare(*ours, *bare))
            .collect();
        median(&pairs)
    }
}

/// The middle of some figures.
pub fn median(samples: &[f64]) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}

/// All that was measured.
#[derive(Debug, Default)]
pub struct Table {
    rows: Vec<Row>,
}

/// One way of doing a thing, and what does it once.
pub type Way<'a> = (&'a str, Box<dyn FnMut() -> Result<(), String> + 'a>);

impl Table {
    /// Does a thing in several ways, round by round, each round beginning with another way, and keeps the wall times. A
    /// first round warms up and is not kept. A way that fails is not tried again.
    pub fn interleave(&mut self, item: &str, aim: &str, rounds: usize, mut ways: Vec<Way<'_>>) {
        eprintln!("bench: {item}");
        let mut row = Row {
            item: item.into(),
            unit: Unit::Milliseconds,
            samples: BTreeMap::new(),
            faults: BTreeMap::new(),
            aim: aim.into(),
        };
        for round in 0..=rounds {
            let first = round % ways.len().max(1);
            ways.rotate_left(first);
            for (way, once) in &mut ways {
                if row.faults.contains_key(*way) {
                    continue;
                }
                let begun = Instant::now();
                let done = once();
                let took = begun.elapsed().as_secs_f64() * 1000.0;
                match done {
                    Ok(()) if round > 0 => row.samples.entry((*way).into()).or_default().push(took),
                    Ok(()) => {}
                    Err(fault) => {
                        eprintln!("bench: {item}: {way}: {fault}");
                        row.faults.insert((*way).into(), fault);
                    }
                }
            }
        }
        self.rows.push(row);
    }

    /// Keeps figures of ours that were measured elsewhere, or says why there are none.
    pub fn ours(&mut self, item: &str, aim: &str, unit: Unit, samples: Result<Vec<f64>, String>) {
        let mut row = Row {
            item: item.into(),
            unit,
            samples: BTreeMap::new(),
            faults: BTreeMap::new(),
            aim: aim.into(),
        };
        match samples {
            Ok(samples) => _ = row.samples.insert("ours".into(), samples),
            Err(fault) => {
                eprintln!("bench: {item}: {fault}");
                row.faults.insert("ours".into(), fault);
            }
        }
        self.rows.push(row);
    }

    /// True when nothing was measured.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// True when nothing failed.
    pub fn is_whole(&self) -> bool {
        self.rows.iter().all(|row| row.faults.is_empty())
    }

    /// Everything, with all samples.
    pub fn json(&self) -> Value {
        let items: Vec<Value> = self
            .rows
            .iter()
            .map(|row| {
                let medians: BTreeMap<&str, f64> =
                    WAYS.iter().filter_map(|way| Some((*way, row.median(way)?))).collect();
                json!({
                    "item": row.item, "unit": row.unit.as_str(), "aim": row.aim, "medians": medians,
                    "more_than_bare": row.against_bare(|ours, bare| ours - bare),
                    "ratio_to_bare": row.against_bare(|ours, bare| ours / bare),
                    "samples": row.samples, "faults": row.faults,
                })
            })
            .collect();
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        json!({"cores": cores, "kernel": kernel.trim(), "items": items})
    }
}

fn cell(value: Option<f64>, unit: &str) -> String {
    match value {
        Some(value) if value.abs() >= 1000.0 => format!("{value:.0} {unit}"),
        Some(value) if value.abs() >= 10.0 => format!("{value:.1} {unit}"),
        Some(value) => format!("{value:.2} {unit}"),
        None => "-".into(),
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A way that was tried nowhere has no column.
        let tried = |way: &&str| {
            let of = |row: &Row| row.samples.contains_key(*way) || row.faults.contains_key(*way);
            self.rows.iter().any(of)
        };
        let ways: Vec<&str> = WAYS.into_iter().filter(|way| tried(way)).collect();
        let columns = ways.join(" | ");
        writeln!(f, "| item | {columns} | ours − bare | ours ÷ bare | aim |")?;
        writeln!(f, "|---|{}---|---|---|", "---|".repeat(ways.len()))?;
        for row in &self.rows {
            let unit = row.unit.as_str();
            let of = |way: &str| match row.faults.get(way) {
                Some(_) => "failed".into(),
                None => cell(row.median(way), unit),
            };
            let more = cell(row.against_bare(|ours, bare| ours - bare), unit);
            let ratio = cell(row.against_bare(|ours, bare| ours / bare), "×");
            let cells: Vec<String> = ways.iter().map(|way| of(way)).collect();
            let cells = cells.join(" | ");
            writeln!(f, "| {} | {cells} | {more} | {ratio} | {} |", row.item, row.aim)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_paired_and_a_way_that_fails_is_said() {
        let mut table = Table::default();
        let ways: Vec<Way<'_>> = vec![
            ("bare", Box::new(|| Ok(()))),
            ("bwrap", Box::new(|| Err("not there".into()))),
            (
                "ours",
                Box::new(|| {
                    std::thread::sleep(std::time::Duration::from_millis(2));
                    Ok(())
                }),
            ),
        ];
        table.interleave("nothing", "", 3, ways);
        let json = table.json();
        let item = &json["items"][0];
        assert_eq!(item["samples"]["ours"].as_array().map(Vec::len), Some(3));
        assert!(
            item["more_than_bare"].as_f64().is_some_and(|more| more >= 1.5),
            "{item}"
        );
        assert_eq!(item["faults"]["bwrap"], "not there");
        assert!(!table.is_whole() && table.to_string().contains("failed"));
        assert!(
            table
                .to_string()
                .starts_with("| item | bare | bwrap | ours | ours − bare |"),
            "{table}"
        );
    }
}
