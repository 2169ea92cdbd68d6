package runner

import "saltern/master/value"

// minions lists the keys with what a master saw of their minions.
const minions = "presence.minions"

// records are those of the audit log, which only who may call it shall read.
const records = "audit.records"

// Alone is a named argument of pillar.show_pillar of ours: the return is for the caller
// alone. Without it the return is an event, as Salt's is, which whoever is logged in to
// salt-api may read, and stands in the job cache.
const Alone = "saltern_alone"

// Private tells of runners, by the name in their events ("runner.test.echo"),
// whose return is for the caller alone, since it holds a secret or is long and
// soon old. It is neither kept in the job cache nor sent to the peers.
func Private(fun string) bool {
	return fun == "runner."+minions || len(fun) > len("runner.") && secret(fun[len("runner."):], nil)
}

// secret reports whether the return of a runner is a secret, or not for all who may
// read events. It is given to the caller in the answer to his request, and to nobody
// else: others may read the events on this host.
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

// NotForAll stands in events and in the job cache where a return for the caller alone was.
const NotForAll = "not shown: it is for the caller alone"
