package schedule

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"saltern/internal/versioned"
	"saltern/master/internal/schedule/plan"
)

// maxRecord bounds the size of the record, in bytes. With 10,000 entries the record has some 3 MiB.
const maxRecord = 8 << 20

// record is the state of the schedule that all masters of a cluster share.
type record struct {
	Version uint64       `json:"version"`
	Term    uint64       `json:"term"`   // term of the master that wrote the record
	Looked  time.Time    `json:"looked"` // civil time of the last check
	Entries entryRecords `json:"entries"`
}

// entryRecords holds the records of the entries by key. It leaves out a record that cannot be read,
// so that only the entry of that record starts without its state.
type entryRecords map[string]entryRecord

// UnmarshalJSON implements [json.Unmarshaler].
func (r *entryRecords) UnmarshalJSON(text []byte) error {
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(text, &raw); err != nil {
		return err
	}
	*r = entryRecords{}
	for key, text := range raw {
		var known entryRecord
		if json.Unmarshal(text, &known) == nil {
			(*r)[key] = known
		}
	}
	return nil
}

type entryRecord struct {
	// Digest is the hash of the entry's settings. If the settings in the option have another hash,
	// the record of the entry is not used.
	Digest string     `json:"digest"`
	State  plan.State `json:"state"`
	// Carried is the civil time since which masters pass the record on without knowing the entry. Zero means
	// that the master that wrote it knows the entry.
	Carried time.Time `json:"carried,omitzero"`
	// Job is the id of the latest job on minions that a run of the entry has started; "": none is known.
	// It is written after the run has begun, so it may be of the run before the one in State.
	Job string `json:"job,omitempty"`
}

// Records stores the record of a cluster in a file that all masters share. Each run is recorded
// there before it starts. Only one master can write the version that follows a given version, so no
// run starts twice, whichever master owns the schedule.
type Records struct{ file versioned.File }

// OpenRecords returns the Records at path. It does not access the disk.
func OpenRecords(path string) *Records {
	return &Records{versioned.File{
		Path:  path,
		Mode:  0o600,
		Limit: maxRecord,
		Version: func(content []byte) (uint64, error) {
			r, err := parseRecord(content)
			return r.Version, err
		},
	}}
}

func parseRecord(content []byte) (r record, err error) {
	if err := json.Unmarshal(content, &r); err != nil {
		return record{}, fmt.Errorf("read the record of the schedule: %w", err)
	}
	if r.Version == 0 {
		return record{}, errors.New("the record of the schedule has no version")
	}
	return r, nil
}

// loadNewest returns the newest record. If there is no record yet, it returns one with version 0.
func (r *Records) loadNewest() (record, error) {
	content, _, err := r.file.Read()
	if errors.Is(err, fs.ErrNotExist) {
		return record{}, nil
	}
	if err != nil {
		return record{}, fmt.Errorf("read what other masters have run of the schedule: %w", err)
	}
	return parseRecord(content)
}

// setAside renames the records that cannot be read, so that loadNewest returns the newest readable
// record. setAside returns the new names.
func (r *Records) setAside() ([]string, error) { return r.file.SetAside() }

// replaceNext writes next. The version of next must follow that of the current record. The error
// matches [versioned.ErrConflict] if another master has already written that version.
func (r *Records) replaceNext(next record) error {
	content, err := json.Marshal(next)
	if err == nil {
		err = r.file.Write(next.Version-1, content)
	}
	if err != nil {
		return fmt.Errorf("note runs of the schedule for the other masters: %w", err)
	}
	return nil
}
