//! Rules people write, compiled to Cedar.
