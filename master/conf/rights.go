package conf

import "saltern/master/internal/acl"

// Rights that are not functions. Their values are the texts that the master sends to salt-api.
const (
	AllEvents = "events" // read all events of the master, not only those of his own jobs
	AllJobs   = "jobs"   // look up the jobs of others with the runner jobs.list_job
	Hooks     = "hooks"  // fire events with the web hook
)

// everyLogin is the value of saltern_event_readers that grants every user all these rights, as Salt
// does.
const everyLogin = "all"

// Rights returns the rights that permissions include and that are not functions, as AllEvents,
// AllJobs and Hooks.
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
