//! How many containers a service has.
//!
//! | module | what is there |
//! |---|---|
//! | [`histogram`] | times of answers, of which percentiles are asked |
//! | [`rule`] | what was measured, and what follows from it: a pure function |

pub mod histogram;
pub mod rule;
