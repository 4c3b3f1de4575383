"""Workers that call other implementations of attention for `kgen bench --peer`."""
