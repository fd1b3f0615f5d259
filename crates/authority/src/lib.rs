//! Capabilities: covers and attenuate.
