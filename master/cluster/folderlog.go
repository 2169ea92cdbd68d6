package cluster

import (
	"errors"
	"log/slog"
	"sync"
	"time"
)

// folderLog logs the faults of the cluster's folder: when a fault begins, when its cause changes,
// once a minute while it lasts, and when it ends. The pool retries the folder every second; without
// folderLog it would log the same fault for hours. The methods of a folderLog may be called
// concurrently.
type folderLog struct {
	log *slog.Logger

	mu     sync.Mutex
	faults map[string]folderFault // the lasting faults; the key is the argument what of the method result
}

type folderFault struct {
	cause  string
	logged time.Time
	since  time.Time
}

func newFolderLog(l *slog.Logger) *folderLog {
	return &folderLog{log: l, faults: map[string]folderFault{}}
}

// result logs the outcome of one attempt; action names the operation by its verb ("read the
// cluster's record"), and err is nil after success.
func (f *folderLog) result(action string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	last, failing := f.faults[action]
	now := time.Now()
	switch {
	case err == nil && !failing:
	case err == nil:
		delete(f.faults, action)
		f.log.Info("the cluster's folder is usable again", "to", action, "failed_for",
			now.Sub(last.since).Round(time.Second).String())
	case failing && last.cause == rootCause(err) && now.Sub(last.logged) < time.Minute:
	default:
		if !failing {
			last.since = now
		}
		last.cause, last.logged = rootCause(err), now
		f.faults[action] = last
		f.log.Warn("cannot "+action+"; retrying", "error", err)
	}
}

// rootCause returns the innermost text of err. The outer texts name temporary files, and those
// names differ each time.
func rootCause(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}
