// Package runner holds the runners that the master answers itself, without Python: Salt's jobs,
// manage, cache, fileserver, pillar, event, state.event, reactor, test, config, match and error, and
// our own files. Other packages add further ones to the Table, see openRunners in package master.
//
// A Table maps names such as "jobs.lookup_jid" to functions. It binds arguments to parameters as
// Python does, and refuses wrong ones with the same text. Results have the form of those of the
// Python runners of 3008.3 (salt/runners/*.py).
//
// The functions reach the master only through the interfaces of Env. If an interface is nil, the
// functions that need it return ErrUnavailable. The package keeps no state; everything may be
// called concurrently if that holds for the parts of Env.
package runner
