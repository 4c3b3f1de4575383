//! The selection flags every command shares.
