package returner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"saltern/master/jobs"
	"saltern/master/value"
)

// TestJobOnAFullDisk: a job that a spool cannot store because its disk is full is kept nowhere,
// whichever of the returners it is.
func TestJobOnAFullDisk(t *testing.T) {
	for _, full := range []string{"one", "two"} {
		t.Run(full, func(t *testing.T) {
			log := slog.New(slog.NewTextHandler(t.Output(), nil))
			dir := t.TempDir()
			below, err := jobs.Open(jobs.Config{Dir: filepath.Join(dir, "jobs")}, log)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = below.Close(context.Background()) })

			spools := filepath.Join(dir, "spools")
			j, err := OpenJobs(below, JobsConfig{Dir: spools, Bytes: 1 << 20, Master: "one", External: "two", Now: time.Now, Log: log})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = j.Close() })

			// All writes to /dev/full fail as those to a full disk do.
			segment := filepath.Join(spools, "jobs", full, fmt.Sprintf("%020d.records", 0))
			if err := os.Symlink("/dev/full", segment); err != nil {
				t.Fatal(err)
			}

			const refused = "20260102030405678901"
			if _, err := j.Stage(t.Context(), refused, value.NewMap("fun", "test.ping"), []string{"w1"}); !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("staged on a full disk: %v", err)
			}
			if load, err := j.Load(t.Context(), refused); load != nil || err != nil {
				t.Errorf("the cache below shows a job that was refused: %v, %v", load, err)
			}
		})
	}
}
