// Package client connects the command line tools to a master: it parses arguments as Salt does,
// publishes jobs, gathers their returns from the event bus, and runs batches. It uses Salt's own
// protocol and so works with a Python master as well as with Saltern's: unencrypted requests to
// ret_port, events from the socket directory, keys from the cache directory
// (salt/client/__init__.py, salt/cli/batch.py).
//
// The package prints nothing; its callers do.
package client
