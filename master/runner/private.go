package runner

import (
	"slices"

	"saltern/master/value"
)

// minions is the name of the function that lists the keys and the last requests and sign-ins of
// their minions.
const minions = "presence.minions"

// records is the name of the function that returns audit records. Only a caller with the permission
// for that function may read the result.
const records = "audit.records"

// Alone is a named argument of pillar.show_pillar and cache.grains that Salt lacks: with it only the caller gets the
// return. Without it the return is an event, as in Salt: every user of salt-api who may read events
// sees the return, and the job cache stores it.
const Alone = "saltern_alone"

// Private reports whether only the caller may get a runner's return, because the return contains a
// secret, or is large and soon outdated. fun is the runner's name in events ("runner.test.echo").
// The master neither stores such a return in the job cache nor sends it to the peers.
func Private(fun string) bool {
	return fun == "runner."+minions || slices.Contains(pagesOnly, fun) || len(fun) > len("runner.") && secret(fun[len("runner."):], nil)
}

// pagesOnly are runners whose returns are large and soon outdated; the console calls them for its pages.
var pagesOnly = []string{"runner.fleet.trend", "runner.fleet.last", "runner.fleet.jobs", "runner.fleet.runs", "runner.saved.outcome"}

// secret reports whether the return of a runner is secret, or must not be shown to all readers of
// events. Only the caller gets such a return, in the answer to the request, because other users of
// this host may read the events.
func secret(fun string, named *value.Map) bool {
	switch fun {
	case "auth.mk_token":
		return true
	case "cluster.remove", "cluster.secret", records, "audit.all", "files.list", "files.show", "appliance.status", "appliance.course",
		"pillar.diff", "top.diff":
		return true
	case "pillar.show_pillar", "cache.grains":
		return named.Bool(Alone)
	}
	return false
}

// NotForAll replaces, in events and in the job cache, a return that only the caller may get.
const NotForAll = "not shown: it is for the caller alone"
