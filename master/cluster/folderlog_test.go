package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"saltern/test/await"
	"saltern/test/check"
)

func TestFolderLog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		out := &lines{}
		f := newFolderLog(slog.New(slog.NewTextHandler(out, nil)))
		n := 0
		attempt := func(err error) int {
			before := strings.Count(out.String(), "\n")
			f.result("change it", err)
			time.Sleep(time.Second)
			return strings.Count(out.String(), "\n") - before
		}

		away := func() error {
			n++
			return &fs.PathError{Op: "open", Path: fmt.Sprintf("/srv/.tmp-%d", n), Err: syscall.ENOTCONN}
		}
		if attempt(nil) != 0 || attempt(away()) != 1 {
			t.Fatal(out)
		}

		count := 0
		for range 119 {
			count += attempt(away())
		}

		if count != 1 {
			t.Errorf("%d lines in the next two minutes", count)
		}

		if attempt(errors.New("read-only")) != 1 || attempt(errors.New("read-only")) != 0 {
			t.Errorf("another cause is logged once: %s", out)
		}

		if attempt(nil) != 1 || attempt(nil) != 0 || !strings.Contains(out.String(), "failed_for=2m2s") {
			t.Errorf("the end is logged once: %s", out)
		}

		if attempt(away()) != 1 {
			t.Error("a new fault is logged at once")
		}
	})
}

// TestFolderAway removes the folder of a working cluster: its masters retry for as long as the
// folder is away and log that once.
func TestFolderAway(t *testing.T) {
	t.Parallel()
	ms, dir, _ := three(t, nil)
	check.Must(t, os.Rename(dir, dir+".away"))

	// The owner of the lease renews it all the time.
	said := func(text string) (most int) {
		for _, m := range ms {
			most = max(most, strings.Count(m.log.String(), text))
		}
		return most
	}

	const change = `msg="cannot change the cluster's record; retrying" error="the shared volume is not mounted`
	await.That(t, "the first line", func() bool { return said(change) > 0 })

	// Wait for several retries.
	await.Holds(t, 4*time.Second, "one line of each master at most", func() bool { return said("cannot change") == 1 })
	if n := said("lost its keys"); n != 0 {
		t.Error("the keys are not lost")
	}

	check.Must(t, os.Rename(dir+".away", dir))
	await.That(t, "the end", func() bool { return said("the cluster's folder is usable again") > 0 })
}
