package backupplan

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"saltern/internal/versioned"
	"saltern/supervisor/settings"
	"saltern/supervisor/status"
)

const (
	maxRecord = 64 << 10
	// claimFor is how long a claim holds. The node with the claim renews it every renewEvery.
	claimFor   = 5 * renewEvery
	renewEvery = 2 * time.Minute
	// retryAfter is the pause after a failed try.
	retryAfter = 15 * time.Minute
	// clockSlack is how far in the future a time from another node may be, because the clocks of
	// nodes differ. Entries with a later time come from a wrong clock and are ignored.
	clockSlack = time.Hour
)

// record is the data that the nodes share about their backups.
type record struct {
	Version uint64                `json:"version"`
	Claim   *claim                `json:"claim,omitempty"`
	Last    *status.BackupFile    `json:"last,omitempty"`
	Failure *status.BackupFailure `json:"failure,omitempty"` // the last failure, if it is newer than Last
	// Targets names the place to which each node has written last, by the node's name.
	Targets map[string]string `json:"targets,omitempty"`
}

// claim is the right of one node to make a backup.
type claim struct {
	status.BackupMaker
	Life  string    `json:"life"` // identifies the try that has the claim
	Until time.Time `json:"until"`
}

// holder returns another node's claim that is valid now, or nil. It ignores a claim of the node
// itself, which belongs to a child that has ended.
func (r record) holder(node string, now time.Time) *claim {
	c := r.Claim
	if c == nil || c.Node == node || !now.Before(c.Until) || c.Until.Sub(now) > claimFor+clockSlack {
		return nil
	}
	return c
}

// lastTime returns the time from which the interval to the next backup is measured. Zero: the next
// backup is due at once.
func (r record) lastTime(now time.Time) time.Time {
	if r.Last == nil || r.Last.Time.Sub(now) > clockSlack {
		return time.Time{}
	}
	return r.Last.Time
}

// dueTime returns when the next backup is due. It ignores failed tries. Zero: at once.
func (r record) dueTime(s settings.Schedule, now time.Time) time.Time {
	base := r.lastTime(now)
	if base.IsZero() {
		return base
	}
	return s.After(base)
}

// nextTime returns dueTime, or the end of the pause after a failed try if that is later.
func (r record) nextTime(s settings.Schedule, now time.Time) time.Time {
	at := r.dueTime(s, now)
	if f := r.Failure; f != nil && f.Time.Sub(now) <= clockSlack {
		if again := f.Time.Add(retryAfter); again.After(at) {
			return again
		}
	}
	return at
}

// recordFile returns the record's file for a node with these settings.
func recordFile(s *settings.Settings) versioned.File {
	return versioned.File{
		Path:  s.BackupRecord(),
		Mode:  0o600,
		Limit: maxRecord,
		Version: func(b []byte) (uint64, error) {
			var r record
			err := json.Unmarshal(b, &r)
			return r.Version, err
		},
	}
}

// readRecord returns the newest record. If there is none, the record's version is 0.
func readRecord(s *settings.Settings) (r record, err error) {
	b, _, err := recordFile(s).Read()
	if errors.Is(err, fs.ErrNotExist) {
		return record{}, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err != nil {
		return record{}, fmt.Errorf("read the record of backups: %w", err)
	}
	return r, nil
}

// changeRecord applies change to the newest record. If another node changes the record first, it
// calls change again with the newer record. If change returns an error, changeRecord returns it and
// writes nothing.
func changeRecord(s *settings.Settings, change func(*record) error) error {
	for {
		r, err := readRecord(s)
		if err != nil {
			return err
		}

		expect := r.Version
		if err := change(&r); err != nil {
			return err
		}

		r.Version++
		b, err := json.MarshalIndent(r, "", " ")
		if err != nil {
			return fmt.Errorf("write the record of backups: %w", err)
		}

		if err = recordFile(s).Write(expect, append(b, '\n')); err == nil {
			return nil
		}
		if !errors.Is(err, versioned.ErrConflict) {
			return fmt.Errorf("write the record of backups: %w", err)
		}
	}
}
