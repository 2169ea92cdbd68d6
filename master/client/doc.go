// Package client talks to a master on behalf of the command line tools: it parses arguments as Salt
// does, publishes jobs, gathers their returns from the event bus, and runs batches. It speaks
// Salt's own protocol and so works with a Python master as well as with Saltern's: unencrypted
// requests to ret_port, events from the socket directory, keys from the cache directory
// (salt/client/__init__.py, salt/cli/batch.py).
//
// The package prints nothing; its callers do.
package client
