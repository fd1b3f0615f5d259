//! Labels: join, flows-to, bits.
