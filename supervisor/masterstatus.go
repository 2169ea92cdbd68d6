package supervisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"saltern/supervisor/service"
	"saltern/supervisor/status"
)

// masterStatus is what we use of <cachedir>/status.json, which the master
// writes every two seconds. Fields that we do not know are left alone, so
// that a newer master may say more.
type masterStatus struct {
	Schema       int             `json:"schema"`
	PID          int             `json:"pid"`
	Written      time.Time       `json:"written"`
	Accepted     int             `json:"accepted"`
	Pending      int             `json:"pending"`
	Rejected     int             `json:"rejected"`
	Denied       int             `json:"denied"`
	Requests     uint64          `json:"requests"`
	Returns      uint64          `json:"returns"`
	Jobs         uint64          `json:"jobs"`
	OldestMillis int64           `json:"oldest_request_ms"`
	PillarError  *pillarError    `json:"last_pillar_error"`
	PillarFaulty int             `json:"pillar_error_minions"`
	Problems     []masterProblem `json:"problems"`
}

// pillarError is the latest pillar that failed.
type pillarError struct {
	Minion string    `json:"minion"`
	Text   string    `json:"text"`
	At     time.Time `json:"at"`
}

// masterProblem is a fault that lasts, as the master words it.
type masterProblem struct {
	What string `json:"what"`
	Text string `json:"text"`
}

const (
	maxMasterStatus = 64 << 10
	maxProblems     = 20
	masterSchema    = 1
	masterStale     = 10 * time.Second // without a new status file
)

var errMasterStatus = errors.New("status file of salt-master cannot be used")

// readMasterStatus reads the file. The master's account owns the folder and
// may be hostile: no link is followed, no pipe waited for, nothing of another
// file's content is told.
func readMasterStatus(path string) (*masterStatus, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !fi.Mode().IsRegular() || fi.Size() > maxMasterStatus {
		return nil, fmt.Errorf("%w: %d bytes, %s", errMasterStatus, fi.Size(), fi.Mode())
	}
	b, err := io.ReadAll(io.LimitReader(f, maxMasterStatus))
	if err != nil {
		return nil, err
	}
	return parseMasterStatus(b)
}

func parseMasterStatus(b []byte) (*masterStatus, error) {
	var s masterStatus
	if json.Unmarshal(b, &s) != nil {
		return nil, fmt.Errorf("%w: it is not as expected", errMasterStatus)
	}
	if s.Schema != masterSchema {
		return nil, fmt.Errorf("%w: schema %d, known is %d", errMasterStatus, s.Schema, masterSchema)
	}
	s.Problems = s.Problems[:min(len(s.Problems), maxProblems)]
	for i := range s.Problems {
		p := &s.Problems[i]
		p.What, p.Text = tame(p.What), tame(p.Text)
	}
	if e := s.PillarError; e != nil {
		e.Minion, e.Text = tame(e.Minion), tame(e.Text)
	}
	s.PillarFaulty = max(s.PillarFaulty, 0)
	s.OldestMillis = max(s.OldestMillis, 0)
	return &s, nil
}

// tame makes text from outside fit for one line of the status.
func tame(s string) string { return clip(service.CleanText(strings.Join(strings.Fields(s), " "))) }

// fresh tells whether the file is of the master that runs now and new enough
// to believe its figures.
func (s *masterStatus) fresh(now time.Time, pid int) bool {
	return s != nil && s.PID == pid && pid != 0 && now.Sub(s.Written) <= masterStale
}

// masterReports gives the problems that the master has told of, and the one
// that it tells nothing any more.
func masterReports(f facts) (out []status.Finding) {
	s := f.master
	var running service.Info
	for _, i := range f.services {
		if i.Name == masterService {
			running = i
		}
	}
	if s == nil || running.PID == 0 || s.PID != running.PID {
		return nil // none yet, or of one that is gone
	}
	if !s.fresh(f.now, running.PID) {
		if running.State != service.Running { // its silence is told already
			return nil
		}
		return []status.Finding{{Code: status.MasterUnreported, Cause: fmt.Sprintf("the last status is %s old", status.Age(f.now.Sub(s.Written)))}}
	}
	for _, p := range s.Problems {
		switch p.What {
		case "job cache":
			out = append(out, status.Finding{Code: status.ReturnsNotKept, Cause: p.Text})
		case "git pillars":
			out = append(out, status.Finding{Code: status.GitPillars, Cause: p.Text})
		default:
			out = append(out, status.Finding{Code: status.MasterProblem, Subject: p.What, Cause: p.Text})
		}
	}
	if e := s.PillarError; e != nil {
		out = append(out, status.Finding{Code: status.PillarErrors, Cause: pillarCause(e, s.PillarFaulty)})
	}
	return out
}

func pillarCause(e *pillarError, minions int) string {
	who := "minion " + e.Minion
	switch {
	case minions == 2:
		who += " (and 1 other)"
	case minions > 2:
		who += fmt.Sprintf(" (and %d others)", minions-1)
	}
	return fmt.Sprintf("%s: %s (at %s)", who, e.Text, e.At.UTC().Format("15:04 UTC"))
}
