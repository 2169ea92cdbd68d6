package supervisor

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"saltern/supervisor/status"
)

// condition is one fault of the storage, as the master is told of it.
type condition struct {
	Code     status.Code `json:"code"`
	Title    string      `json:"title"`
	Cause    string      `json:"cause,omitempty"`
	Next     string      `json:"next,omitempty"`
	NoWrites bool        `json:"no_writes,omitempty"` // keys cannot be stored
}

// conditionsEvery is how often the file is written when nothing changes: the
// master believes it for two minutes.
const conditionsEvery = 20 * time.Second

// conditions keeps the file that tells the master what is wrong with the
// storage. It is for one goroutine.
type conditions struct {
	path string
	text string
	at   time.Time
}

// keep writes the file when its content has changed or is old.
func (c *conditions) keep(now time.Time, problems []status.Problem) error {
	list := []condition{}
	for _, p := range problems {
		if p.Severity != status.Notice && strings.HasPrefix(string(p.Code), "SCA-4") {
			list = append(list, condition{p.Code, p.Title, clip(p.Cause), p.Next, noWrites(p.Code)})
		}
	}
	b, err := json.Marshal(map[string]any{"conditions": list})
	if err != nil {
		return err
	}
	if text := string(b); text != c.text || now.Sub(c.at) >= conditionsEvery || now.Before(c.at) {
		// Not synced: it is for the processes of this boot.
		err := os.WriteFile(c.path+".new", b, 0o644)
		if err == nil {
			err = os.Rename(c.path+".new", c.path)
		}
		if err != nil {
			return fmt.Errorf("tell the master what is wrong with the storage: %w", err)
		}
		c.text, c.at = text, now
	}
	return nil
}

// noWrites tells whether the storage takes no new files while c lasts.
func noWrites(c status.Code) bool {
	switch c {
	case status.StorageUnusable, status.DiskFull, status.VolumeAbsent, status.VolumeHangs, status.VolumeStopped, status.VolumeNoQuorum, status.VolumeFull, status.BrickFull:
		return true
	}
	return false
}
