//! Archives of images.
