//! What a browser is shown: one file a page, each a function of what it is handed.
//!
//! Promises: P8 (every text of an agent's is escaped by the template, and in visible form by [`layout::raw`]; it stands in a box
//! whose letters run from left to right whatever they are).

pub mod authority;
pub mod grants;
pub mod layout;
pub mod log;
pub mod login;
pub mod question;
pub mod questions;
pub mod tasks;
