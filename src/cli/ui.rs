//! Output styles: tables, colours, progress.
