"""One file for each library of peers."""
