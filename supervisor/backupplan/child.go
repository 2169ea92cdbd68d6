package backupplan

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"saltern/internal/filelock"
	"saltern/internal/pause"
	"saltern/supervisor/backup"
	"saltern/supervisor/settings"
	"saltern/supervisor/status"
)

// seen is a child's output: the record on the storage, and the files in the directory. The child
// prints the record first, without the list of files, because the directory may hang.
type seen struct {
	Record *record             `json:"record,omitempty"`
	Files  []status.BackupFile `json:"files,omitempty"`
	Unread string              `json:"unread,omitempty"` // why Files could not be listed; empty: no error
	Error  string              `json:"error,omitempty"`  // why not even Record could be read; empty: no error
}

// step is one line of output of a child that makes a backup.
type step struct {
	Bytes   int64    `json:"bytes"`
	Outcome *Outcome `json:"outcome,omitempty"` // only the last line has an outcome
}

// errHangs means that an earlier child has not ended: it hangs in a call, or its supervisor was
// killed a moment ago.
var errHangs = errors.New("the storage, or the directory for backups, does not answer: an earlier try is still running")

// Main is the main function of the children. args is "look" or "make". The child reads a [Spec]
// from in. The [Keeper] reads the lines that they write to out. Main returns the exit status.
func Main(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	var s Spec
	if err := json.NewDecoder(io.LimitReader(in, 4<<20)).Decode(&s); err != nil || s.Settings == nil || len(args) != 1 {
		fmt.Fprintln(errOut, "usage: look | make, with a spec on standard input")
		return 2
	}

	say := json.NewEncoder(out)
	switch args[0] {
	case "look":
		unlock, err := lockPurpose(s.Settings, "look")
		if err != nil {
			_ = say.Encode(seen{Error: briefError(err)}) // if that fails, nobody reads the output any more
			return 0
		}
		defer unlock()
		runLook(ctx, s.Settings, say.Encode)
	case "make":
		unlock, err := lockPurpose(s.Settings, "make")
		if err != nil {
			o := Outcome{Failed, briefError(err)}
			if errors.Is(err, errHangs) {
				o.Kind = Held
			}
			_ = say.Encode(step{Outcome: &o})
			return 0
		}

		defer unlock()
		runMake(ctx, s, say)
	default:
		fmt.Fprintln(errOut, "usage: look | make")
		return 2
	}

	return 0
}

// runMake makes a backup and reports progress.
func runMake(ctx context.Context, s Spec, say *json.Encoder) {
	m := newMaker(s, time.Now)
	own, stop := context.WithCancel(ctx)
	var saying sync.WaitGroup
	saying.Go(func() {
		for told := int64(-1); pause.For(own, 5*time.Second) == nil; {
			if n := m.moved.Load(); n != told {
				told = n
				_ = say.Encode(step{Bytes: n})
			}
		}
	})

	o := m.makeBackup(ctx)
	stop()
	saying.Wait()
	_ = say.Encode(step{Bytes: m.moved.Load(), Outcome: &o})
}

// runLook prints the record, then the record with the files.
func runLook(ctx context.Context, s *settings.Settings, say func(any) error) {
	r, err := readRecord(s)
	if err != nil {
		_ = say(seen{Error: briefError(err)})
		return
	}

	_ = say(seen{Record: &r})
	var c catalogue
	var f folder
	signer, err := backup.Signer(s)
	if err == nil {
		var in place
		if in, err = newPlace(s.Backup); err == nil {
			f = newFolder(in, s.Cluster, signer)
			c, _, err = f.catalogue(ctx)
		}
	}

	if err != nil {
		_ = say(seen{Record: &r, Unread: briefError(err)})
		return
	}

	_ = say(seen{Record: &r, Files: f.listFiles(ctx, c)})
}

// lockPurpose locks out other children of this node with the same purpose, even those of an earlier
// supervisor. The lock ends with this process.
func lockPurpose(s *settings.Settings, purpose string) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(s.DataDir, "backup."+purpose+".lock"),
		os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the backups: %w", err)
	}
	if err := filelock.Try(f); err != nil {
		f.Close()
		if errors.Is(err, filelock.ErrHeld) {
			return nil, errHangs
		}
		return nil, fmt.Errorf("lock the backups: %w", err)
	}
	return func() { f.Close() }, nil
}
