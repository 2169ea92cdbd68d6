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

// maxRecord is how many bytes the record may have. With 10,000 entries it has some 3 MiB.
const maxRecord = 8 << 20

// record is the state of the schedule that all masters of a cluster share.
type record struct {
	Version uint64       `json:"version"`
	Term    uint64       `json:"term"`   // term of the master that wrote it
	Looked  time.Time    `json:"looked"` // civil time of the last check
	Entries entryRecords `json:"entries"`
}

// entryRecords holds the entries by key. An entry that cannot be read is left out: it starts
// without a record, and the other entries keep theirs.
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
	// hash of the entry's settings; if the settings in the option have another hash, the record of
	// the entry is not used
	Digest string     `json:"digest"`
	State  plan.State `json:"state"`
}

// Records keeps the record of a cluster in a file that all masters share. Each run is noted there
// before it starts. Only one master can write the version after a given one, so no run starts twice,
// whichever master owns the schedule.
type Records struct{ file versioned.File }

// OpenRecords returns the Records at path. It does not use the disk.
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

// loadNewest returns the newest record. If there is none yet, its version is 0.
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

// setAside renames records that cannot be read, so that the newest readable one counts. It returns
// their new names.
func (r *Records) setAside() ([]string, error) { return r.file.SetAside() }

// replaceNext writes next, whose version must follow that of the present record. The error matches
// [versioned.ErrConflict] if another master has written that version.
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
