package audit

import (
	"slices"
	"strconv"
	"strings"
)

// Who returns the actor's name for people. The text may be as long as the actor's fields, and is
// untrusted.
func (a Actor) Who() string {
	switch {
	case a.Proof == Unproven:
		return a.User + " (unproven)"
	case a.As != "" && a.As != a.User:
		return a.User + " as " + a.As
	case a.Eauth != "":
		return a.User + " (" + a.Eauth + ")"
	}
	return a.User
}

// Whence returns where the actor acted from: the address, and the program that forwarded the
// request.
func (a Actor) Whence() string {
	if a.Via != "" {
		return a.From + " via " + a.Via
	}
	return a.From
}

// What returns the function, the object and the number of minions of a record as text.
func (r Record) What() string {
	text := strings.TrimSpace(r.Function + " " + r.Object)
	switch {
	case r.Function == "" || r.Object == "":
	case r.Action == "job.publish":
		text = r.Function + " on " + r.Object
	case r.Action == "saved.run":
		text = "saved job " + r.Object + ": " + r.Function
	}
	switch {
	case r.Minions == 1:
		text += " (1 minion)"
	case r.Minions > 0:
		text += " (" + strconv.Itoa(r.Minions) + " minions)"
	}
	return text
}

// Bad reports whether the act was refused, or failed.
func (r Record) Bad() bool { return r.Result == Refused || r.Result == Failed }

// Reads reports whether the act only read something, and was permitted.
func (r Record) Reads() bool {
	call := r.Action == "runner.call" || r.Action == "wheel.call"
	return call && !r.Bad() && slices.Contains(readers, r.Function)
}

// readers are the runners and wheel functions with a record that only read. Those that read more often have no
// record.
var readers = []string{
	"audit.all", "audit.records",
	"cache.fetch", "cache.list", "cache.mine", "cache.pillar",
	"doc.execution", "doc.runner", "doc.wheel",
	"files.show", "fileserver.dir_list", "fileserver.empty_dir_list", "fileserver.symlink_list",
	"fleet.drift", "fleet.explain", "fleet.search", "fleet.summary",
	"git.branches", "git.reports",
	"jobs.exit_success", "jobs.last_run", "jobs.lookup_jid", "jobs.print_job",
	"manage.alived", "manage.joined", "manage.list_not_state", "manage.list_state", "manage.not_alived",
	"manage.present", "manage.not_present", "manage.status", "manage.up", "manage.versions",
	"notify.list",
	"pillar.diff", "pillar.readers", "pillar.show_pillar", "pillar.show_top", "top.diff",
	"saved.export",
	"config.values", "file_roots.find", "file_roots.list_env", "file_roots.list_roots", "file_roots.read",
	"pillar_roots.find", "pillar_roots.list_env", "pillar_roots.list_roots", "pillar_roots.read", "token.list",
}

// Settled returns the list without the Asked records whose outcome is in the list.
func Settled(list []Record) []Record {
	ended := map[string]bool{}
	for _, r := range list {
		if r.Op != "" && r.Result != Asked {
			ended[r.Op] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(list), func(r Record) bool { return r.Result == Asked && ended[r.Op] })
}
