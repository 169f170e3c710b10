//! Archives and layouts.
