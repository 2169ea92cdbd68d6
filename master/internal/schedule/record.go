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

// maxRecord bounds the record, in bytes: 10,000 entries have some 3 MiB.
const maxRecord = 8 << 20

// record is the schedule's state that the masters of a cluster share.
type record struct {
	Version uint64       `json:"version"`
	Term    uint64       `json:"term"`   // term of the master that wrote it
	Looked  time.Time    `json:"looked"` // civil time of the last check
	Entries entryRecords `json:"entries"`
}

// entryRecords are entries by their keys. An unreadable one is left out and starts from the
// beginning, so that the others continue.
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
	// digest of the option's settings; when it differs, the entry starts from the beginning
	Digest string     `json:"digest"`
	State  plan.State `json:"state"`
}

// Records stores the record of a cluster in a file that all masters share. A run is noted there
// before it starts, and only one master can replace a version. So no run is started twice, whoever
// owns the schedule at the time.
type Records struct{ file versioned.File }

// OpenRecords returns the Records at path.
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

// loadNewest returns the newest record, or one of version 0 when there is none yet.
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

// setAside moves unreadable records out of the way, so that the newest whole record counts, and
// returns their new names.
func (r *Records) setAside() ([]string, error) { return r.file.SetAside() }

// replaceNext replaces the record that has the version before next's. The error matches
// [versioned.ErrConflict] when another master has done so.
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
