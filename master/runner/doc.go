// Package runner holds Salt's runners that the master answers itself, without
// Python: jobs, manage, cache, fileserver, pillar, event, state.event, test,
// config, match and error.
//
// A Table maps names such as "jobs.lookup_jid" to functions. Arguments are
// bound to parameters as Python does, so that wrong ones are refused in the
// same words; what a function returns has the shape that the Python runner of
// 3008.3 returns (salt/runners/*.py).
//
// The functions reach the master only through the interfaces of Env. An
// interface that is nil makes the functions that need it fail with
// ErrUnavailable. The package keeps no state; everything may be called
// concurrently if the parts of Env may.
package runner
