//! The report: what it holds, in the order in which it is read.

use std::path::Path;

use anyhow::Context;
use serde::Serialize;

use crate::chart::Chart;
use crate::html;
use crate::table::Table;

/// How a callout looks and what it means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// As it should be.
    Good,
    /// Worth a look.
    Warning,
    /// Wrong.
    Bad,
    /// Neither: something to know.
    Info,
}

/// A part of a section.
#[derive(Debug, Clone)]
pub(crate) enum Block {
    Paragraph(String),
    Callout { level: Level, title: String, text: String },
    Table(Table),
    Chart(Box<Chart>),
    SideBySide(Vec<Chart>),
}

/// Blocks under a heading.
#[derive(Debug, Clone)]
pub struct Section {
    pub(crate) title: String,
    pub(crate) blocks: Vec<Block>,
}

impl Section {
    /// An empty section.
    #[must_use]
    pub fn new(title: impl Into<String>) -> Section {
        Section { title: title.into(), blocks: Vec::new() }
    }

    fn with(mut self, block: Block) -> Section {
        self.blocks.push(block);
        self
    }

    /// Adds a paragraph of plain text.
    #[must_use]
    pub fn paragraph(self, text: impl Into<String>) -> Section {
        self.with(Block::Paragraph(text.into()))
    }

    /// Adds a verdict, or anything else that must not be overlooked.
    #[must_use]
    pub fn callout(
        self,
        level: Level,
        title: impl Into<String>,
        text: impl Into<String>,
    ) -> Section {
        self.with(Block::Callout { level, title: title.into(), text: text.into() })
    }

    /// Adds a table.
    #[must_use]
    pub fn table(self, table: Table) -> Section {
        self.with(Block::Table(table))
    }

    /// Adds a chart over the full width.
    #[must_use]
    pub fn chart(self, chart: impl Into<Chart>) -> Section {
        self.with(Block::Chart(Box::new(chart.into())))
    }

    /// Adds charts side by side, two per row where the window is wide enough.
    #[must_use]
    pub fn side_by_side(self, charts: impl IntoIterator<Item = Chart>) -> Section {
        self.with(Block::SideBySide(charts.into_iter().collect()))
    }
}

/// A whole report.
#[derive(Debug, Clone)]
pub struct Report {
    pub(crate) title: String,
    pub(crate) subtitle: String,
    pub(crate) facts: Vec<(String, String)>,
    pub(crate) sections: Vec<Section>,
    /// Name and JSON text.
    pub(crate) data: Vec<(String, String)>,
}

impl Report {
    /// An empty report.
    #[must_use]
    pub fn new(title: impl Into<String>) -> Report {
        Report {
            title: title.into(),
            subtitle: String::new(),
            facts: Vec::new(),
            sections: Vec::new(),
            data: Vec::new(),
        }
    }

    /// One line under the title.
    #[must_use]
    pub fn subtitle(mut self, text: impl Into<String>) -> Report {
        self.subtitle = text.into();
        self
    }

    /// Adds a fact a reader needs to repeat the measurement: machine, commit, command.
    #[must_use]
    pub fn fact(mut self, name: impl Into<String>, value: impl Into<String>) -> Report {
        self.facts.push((name.into(), value.into()));
        self
    }

    /// Adds a section.
    #[must_use]
    pub fn section(mut self, section: Section) -> Report {
        self.sections.push(section);
        self
    }

    /// Embeds raw data as JSON, with a link on the page that saves it as `name`.json. The whole of
    /// it is held in memory and in the file.
    ///
    /// # Errors
    /// If `value` has no JSON form (a map with keys that are not strings, for instance).
    pub fn data(mut self, name: impl Into<String>, value: &impl Serialize) -> anyhow::Result<Self> {
        let name = name.into();
        let json = serde_json::to_string(value)
            .with_context(|| format!("the data {name} of the report have no JSON form"))?;
        self.data.push((name, json));
        Ok(self)
    }

    /// The whole page.
    #[must_use]
    pub fn to_html(&self) -> String {
        html::page(self)
    }

    /// Writes the page to a file.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, path: &Path) -> anyhow::Result<()> {
        std::fs::write(path, self.to_html())
            .with_context(|| format!("cannot write the report {}", path.display()))
    }
}
