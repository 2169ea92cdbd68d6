package batch

import "saltern/master/value"

// JobFieldsKey is the field of Salt's map of a batch that holds the [JobFields] of each slice. Salt ignores
// it.
const JobFieldsKey = "saltern_fields"

// JobFields returns the names of the fields of a job that say how minions run its function, where they
// return, and what the job is found by. Each slice of a batch has them; the ping before it does not.
func JobFields() []string {
	return []string{"ret_config", "ret_kwargs", "metadata", "module_executors", "executor_opts", "start_event"}
}

// CallerFields returns the names of the fields in the kwargs of a job that say who sends it and how its target is
// read. Together with the [JobFields] they are what a batch obeys there.
func CallerFields() []string {
	return []string{"token", "username", "password", "eauth", "delimiter"}
}

// JobFieldsOf returns the [JobFields] in a map. m may be nil.
func JobFieldsOf(m *value.Map) *value.Map {
	fields := value.NewMap()
	for _, name := range JobFields() {
		if v, ok := m.Get(name); ok {
			fields.Set(name, v)
		}
	}
	return fields
}

// WithoutJobFields returns a map without the [JobFields]: that of the ping before a batch. m may be nil.
func WithoutJobFields(m *value.Map) *value.Map {
	rest := m.Clone()
	for _, name := range JobFields() {
		rest.Delete(name)
	}
	return rest
}

// withFields returns the state of a batch with the [JobFields] of its slices. The events of a batch do not show
// them, since the settings of a returner may hold its password. fields may be nil.
func withFields(state, fields *value.Map) *value.Map {
	if fields.Len() == 0 {
		return state
	}
	state = state.Clone()
	state.Set(JobFieldsKey, JobFieldsOf(fields))
	return state
}
