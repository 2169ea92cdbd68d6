package conf

import "saltern/master/internal/acl"

// Rights that are not functions. Their values are the texts that the master sends to salt-api.
const (
	AllEvents = "events" // read all events of the master, not only those of the user's own jobs
	AllJobs   = "jobs"   // look up the jobs of others with the runner jobs.list_job
	Hooks     = "hooks"  // fire events with the web hook
)

// everyLogin is the value of saltern_event_readers that grants every user all these rights, as Salt
// does.
const everyLogin = "all"

// Rights returns AllEvents, AllJobs and Hooks, as far as permissions or the option
// saltern_event_readers grant them.
func (m *Master) Rights(permissions []any) (words []string) {
	open := m.EventReaders == everyLogin
	if open || acl.MayReadEvents(permissions) {
		words = append(words, AllEvents)
	}
	if open || acl.Special(permissions, "runner", "jobs.list_job", nil, nil) {
		words = append(words, AllJobs)
	}
	if open || acl.MayFireHooks(permissions) {
		words = append(words, Hooks)
	}
	return words
}
