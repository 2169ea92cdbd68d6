package runner

import (
	"slices"
	"strings"

	"saltern/master/value"
)

// records is the name of the function that returns audit records. Only a caller with the permission
// for that function may read the result.
const records = "audit.records"

// Alone is a named argument of pillar.show_pillar and cache.grains that Salt lacks: with it only the caller gets the
// return. Without it the return is an event, as in Salt: every user of salt-api who may read events
// sees the return, and the job cache stores it.
const Alone = "saltern_alone"

// Private reports whether only the caller may get a runner's return, whatever its arguments, because the
// return contains a secret, or is large and soon outdated. fun is the runner's name in events ("runner.test.echo").
// The master neither stores such a return in the job cache nor sends it to the peers.
func Private(fun string) bool {
	name, ok := strings.CutPrefix(fun, "runner.")
	return ok && Secret(name, nil)
}

// pagesOnly are runners whose returns are large and soon outdated; the console calls them for its pages.
var pagesOnly = []string{"presence.minions", "fleet.trend", "fleet.last", "fleet.jobs", "fleet.runs", "saved.outcome",
	"git.branches", "git.reports"}

// Secret reports whether the return of a runner is secret, or must not be shown to all readers of
// events. Only the caller gets such a return, in the answer to the request, because other users of
// this host may read the events.
func Secret(fun string, named *value.Map) bool {
	if slices.Contains(pagesOnly, fun) {
		return true
	}
	switch fun {
	case "auth.mk_token":
		return true
	case "cluster.remove", "cluster.secret", records, "audit.all", "files.list", "files.show", "appliance.status", "appliance.course",
		"pillar.diff", "top.diff", "pillar.readers", "fleet.explain":
		return true
	case "pillar.show_pillar", "cache.grains":
		return named.Bool(Alone)
	}
	return false
}

// NotForAll replaces, in events and in the job cache, a return that only the caller may get.
const NotForAll = "not shown: it is for the caller alone"
