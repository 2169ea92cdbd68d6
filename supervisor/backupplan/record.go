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
	// claimFor is how long a claim holds. Its node renews it every renewEvery.
	claimFor   = 5 * renewEvery
	renewEvery = 2 * time.Minute
	// retryAfter is the pause after a try that failed.
	retryAfter = 15 * time.Minute
	// clockSlack is how far ahead a time of another node may be. A time further ahead comes from
	// a wrong clock and counts as never.
	clockSlack = time.Hour
)

// record is the nodes' common record of their backups.
type record struct {
	Version uint64                `json:"version"`
	Claim   *claim                `json:"claim,omitempty"`
	Last    *status.BackupFile    `json:"last,omitempty"`
	Failure *status.BackupFailure `json:"failure,omitempty"` // newer than Last
	// Targets are the directories to which nodes have written last, by node.
	Targets map[string]string `json:"targets,omitempty"`
}

// claim is the right to make a backup.
type claim struct {
	status.BackupMaker
	Life  string    `json:"life"` // tells one try from another
	Until time.Time `json:"until"`
}

// holder returns the claim of another node, if one holds now. A claim of this node belongs to a
// child that has ended.
func (r record) holder(node string, now time.Time) *claim {
	c := r.Claim
	if c == nil || c.Node == node || !now.Before(c.Until) || c.Until.Sub(now) > claimFor+clockSlack {
		return nil
	}
	return c
}

// lastTime returns the time from which the next backup is counted. Zero means: at once.
func (r record) lastTime(now time.Time) time.Time {
	if r.Last == nil || r.Last.Time.Sub(now) > clockSlack {
		return time.Time{}
	}
	return r.Last.Time
}

// dueTime returns when the next backup is due if no try has failed. Zero means: at once.
func (r record) dueTime(s settings.Schedule, now time.Time) time.Time {
	base := r.lastTime(now)
	if base.IsZero() {
		return base
	}
	return s.After(base)
}

// nextTime is dueTime, but not right after a failure.
func (r record) nextTime(s settings.Schedule, now time.Time) time.Time {
	at := r.dueTime(s, now)
	if f := r.Failure; f != nil && f.Time.Sub(now) <= clockSlack {
		if again := f.Time.Add(retryAfter); again.After(at) {
			return again
		}
	}
	return at
}

// recordFile is the record on the storage of a node with these settings.
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

// readRecord returns the newest record. Its version is 0 if there is none.
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

// changeRecord changes the newest record. It calls change again when another node was faster, and
// returns the error with which change refuses.
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
