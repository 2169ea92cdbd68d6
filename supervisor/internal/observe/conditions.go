package observe

import (
	"fmt"
	"strings"
	"time"

	"saltern/internal/control"
	"saltern/internal/durable"
	"saltern/supervisor/status"
)

// conditions writes the file from which the master learns about faults of the storage. Only one
// goroutine may use it.
type conditions struct {
	path string
	text string
	at   time.Time
}

// writeIfDue writes the file if its content has changed or control.ConditionsEvery has passed.
func (c *conditions) writeIfDue(now time.Time, problems []status.Problem) error {
	var list []control.Condition
	for _, p := range problems {
		if p.Severity != status.Notice && strings.HasPrefix(string(p.Code), "SCA-4") {
			list = append(list, control.Condition{
				Code:     string(p.Code),
				Title:    p.Title,
				Cause:    status.Clip(p.Cause),
				Next:     p.Next,
				NoWrites: noWrites(p.Code),
			})
		}
	}

	b, err := control.PackConditions(list)
	if err != nil {
		return err
	}

	if text := string(b); text != c.text || now.Sub(c.at) >= control.ConditionsEvery || now.Before(c.at) {
		// No fsync, because only processes of this boot read the file.
		if err := durable.Swap(c.path, b, 0o644); err != nil {
			return fmt.Errorf("tell the master what is wrong with the storage: %w", err)
		}
		c.text, c.at = text, now
	}

	return nil
}

// noWrites reports whether the storage takes no new files while it has the problem c.
func noWrites(c status.Code) bool {
	switch c {
	case status.StorageUnusable, status.DiskFull, status.VolumeAbsent, status.VolumeHangs, status.VolumeStopped,
		status.VolumeNoQuorum, status.VolumeFull, status.BrickFull:
		return true
	}
	return false
}
