// Package runner holds the runners that the master performs itself, without Python: Salt's jobs,
// manage, cache, fileserver, pillar, event, state.event, reactor, test, config, match and error,
// and the runners of showfiles.go, which Salt lacks. Other packages add further runners to the
// Table; see openRunners in package master.
//
// A Table maps names such as "jobs.lookup_jid" to functions. It binds arguments to parameters as
// Python does, and refuses wrong arguments with the same text. The results have the same form as
// those of the Python runners of 3008.3 (salt/runners/*.py).
//
// The functions reach the master only through the interfaces of Env. If an interface is nil, the
// functions that need it return ErrUnavailable. The package keeps no state; its functions may be
// called concurrently if the parts of Env may be.
package runner
