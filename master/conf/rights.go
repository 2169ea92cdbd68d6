package conf

import "saltern/master/internal/acl"

// What somebody may do that is no function, in the words that the master tells salt-api.
const (
	AllEvents = "events" // read all events of the master, not those of his own jobs alone
	AllJobs   = "jobs"   // look up the jobs of others, by the runner jobs.list_job
	Hooks     = "hooks"  // fire events by the web hook
)

// everyLogin is the word of saltern_event_readers for what Salt does.
const everyLogin = "all"

// Rights are the words for what permissions allow that is no function.
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
