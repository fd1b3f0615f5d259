//! The person's commands, one file each.

pub mod can;
pub mod doctor;
pub mod explain;
pub mod log;
pub mod made;
pub mod policy;
pub mod run;
pub mod status;
pub mod summary;
pub mod trust;
