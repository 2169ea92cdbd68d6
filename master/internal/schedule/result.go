package schedule

import (
	"os"
	"time"

	"saltern/master/value"
)

// runResult returns the data for the event of a run, without the outcome of the run.
func (e *entry) runResult(id, jid, fun string, args []any, now time.Time) *value.Map {
	data := value.NewMap(
		"id", id,
		"fun", fun,
		"fun_args", args,
		"schedule", e.Name,
		"jid", jid,
		"pid", int64(os.Getpid()),
	)

	if e.Metadata != nil {
		metadata := e.Metadata.Clone()
		metadata.Set("_TOS", "0000") // offset of the time zone; no runner function uses it
		metadata.Set("_TS", now.Format(time.ANSIC))
		metadata.Set("_TT", now.UTC().Format("2006 January 02 Mon 15 01"))
		data.Set("metadata", metadata)
	}

	return data
}

// toReturners adds to a result the fields that only returners get, and returns the result.
func (e *entry) toReturners(data *value.Map) *value.Map {
	if e.ReturnConfig != nil {
		data.Set("ret_config", e.ReturnConfig)
	}
	if e.ReturnKwargs != nil {
		data.Set("ret_kwargs", e.ReturnKwargs)
	}
	return data
}
