//! The person's commands, one file each.

pub mod approve;
pub mod attach;
pub mod can;
pub mod choose;
pub mod company;
pub mod console;
pub mod doctor;
pub mod explain;
pub mod give;
pub mod grants;
pub mod hook;
pub mod init;
pub mod last;
pub mod log;
pub mod login;
pub mod pages;
pub mod paths;
pub mod policy;
pub mod refused;
pub mod run;
pub mod status;
pub mod status_file;
pub mod summary;
pub mod tell;
pub mod trust;
pub mod uninstall;
