// Package client is what the command line tools use to talk to a master: it
// reads arguments as Salt does, publishes jobs, gathers their returns from
// the event bus, and runs batches.
//
// It speaks Salt's own protocol and therefore serves a Python master as well
// as ours: clear requests to ret_port, events from the socket directory, keys
// from the cache directory (salt/client/__init__.py, salt/cli/batch.py).
//
// Nothing is printed here; the callers decide how things look.
package client
