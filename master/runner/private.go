package runner

import "saltern/master/value"

// minions is the function that lists the keys with what a master saw of their minions.
const minions = "presence.minions"

// records is the function that returns the audit log. Only callers with its permission may read the
// result.
const records = "audit.records"

// Alone is our own named argument of pillar.show_pillar: only the caller gets the return. Without
// it the return is an event, as in Salt, which everybody who is logged in to salt-api may read, and
// it is stored in the job cache.
const Alone = "saltern_alone"

// Private reports whether only the caller may get a runner's return, by the name in its events
// ("runner.test.echo"): the return contains a secret, or is large and soon outdated. It is neither
// stored in the job cache nor sent to the peers.
func Private(fun string) bool {
	return fun == "runner."+minions || len(fun) > len("runner.") && secret(fun[len("runner."):], nil)
}

// secret reports whether the return of a runner is secret, or not meant for all readers of events.
// The caller gets it in the answer to the request, and nobody else does, because others may read
// the events on this host.
func secret(fun string, named *value.Map) bool {
	switch fun {
	case "auth.mk_token":
		return true
	case "cluster.remove", "cluster.secret", records, "audit.all", "files.list", "files.show", "appliance.status", "appliance.course":
		return true
	case "pillar.show_pillar":
		return named.Bool(Alone)
	}
	return false
}

// NotForAll replaces a return that only the caller may get, in events and in the job cache.
const NotForAll = "not shown: it is for the caller alone"
