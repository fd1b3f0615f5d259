//! What tests share: probe, origin server, house rules.
