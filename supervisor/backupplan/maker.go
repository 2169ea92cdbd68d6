package backupplan

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"saltern/internal/pause"
	"saltern/internal/printable"
	"saltern/supervisor/backup"
	"saltern/supervisor/settings"
	"saltern/supervisor/status"
)

// Spec is a child's task.
type Spec struct {
	Settings   *settings.Settings
	ConfigPath string // path of appliance.yaml
	Version    string // version of this program
	// Now requests a backup even if none is due.
	Now bool
}

// Outcome is the result of a try.
type Outcome struct {
	// Kind says whether a backup was made.
	Kind Kind
	// Text is the reason why no backup was made. For [Made] it is a failure of a later step, or
	// empty.
	Text string
}

// Kind is the kind of an outcome.
type Kind string

// Values of Kind.
const (
	Made   Kind = "made"
	Early  Kind = "early"  // no longer due: another node has made a backup
	Held   Kind = "held"   // another node makes a backup, or an earlier child has not ended
	Failed Kind = "failed" // the try failed; the record says so, if it could be written
)

const maxCause = 500

var errLost = errors.New("another node makes the backup: this one was held up for too long")

// maker makes one backup.
type maker struct {
	Spec
	now   func() time.Time
	life  string
	moved atomic.Int64 // bytes written so far
}

func newMaker(s Spec, now func() time.Time) *maker {
	return &maker{Spec: s, now: now, life: rand.Text()}
}

// makeBackup makes a backup if one is due and this node acquires the claim. Only one makeBackup may
// run on a node at a time.
func (m *maker) makeBackup(ctx context.Context) Outcome {
	out := m.takeClaim()
	if out.Kind != Made {
		return out
	}

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var renewing sync.WaitGroup
	renewing.Go(func() { m.renewing(ctx, cancel) })
	file, err := m.writeBackup(ctx)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}

	cancel(nil)
	renewing.Wait()
	if errors.Is(err, errLost) {
		return Outcome{Failed, err.Error()}
	}

	return m.recordOutcome(file, err)
}

// takeClaim acquires the claim, the right to make a backup. It returns [Made] if it acquired the
// claim.
func (m *maker) takeClaim() Outcome {
	b := m.Settings.Backup
	schedule, err := b.Schedule()
	if err != nil {
		return Outcome{Failed, err.Error()}
	}

	out := Outcome{Kind: Made}
	stop := errors.New("no claim")
	err = changeRecord(m.Settings, func(r *record) error {
		now := m.now().UTC().Truncate(time.Second)
		if c := r.holder(m.Settings.Node, now); c != nil {
			out = Outcome{Held, fmt.Sprintf("%s makes a backup since %s", c.Node, c.Since.UTC().Format("15:04:05 UTC"))}
			return stop
		}
		if !m.Now && now.Before(r.nextTime(schedule, now)) {
			out = Outcome{Kind: Early}
			return stop
		}

		r.Claim = &claim{status.BackupMaker{Node: m.Settings.Node, Since: now}, m.life, now.Add(claimFor)}
		return nil
	})
	if err != nil && !errors.Is(err, stop) {
		return Outcome{Failed, briefError(err)}
	}

	return out
}

// renewClaim extends the claim. If this try no longer has the claim, it returns errLost.
func (m *maker) renewClaim() error {
	return changeRecord(m.Settings, func(r *record) error {
		if r.Claim == nil || r.Claim.Life != m.life {
			return errLost
		}
		r.Claim.Until = m.now().UTC().Truncate(time.Second).Add(claimFor)
		return nil
	})
}

// renewing renews the claim until ctx ends. It continues while the storage accepts no writes,
// because no other node can acquire the claim then.
func (m *maker) renewing(ctx context.Context, lost context.CancelCauseFunc) {
	for pause.For(ctx, renewEvery) == nil {
		if err := m.renewClaim(); errors.Is(err, errLost) {
			lost(errLost)
			return
		}
	}
}

// writeBackup writes the backup and publishes it. If it returns both a file and an error, the
// backup was made and a later step failed.
func (m *maker) writeBackup(ctx context.Context) (*status.BackupFile, error) {
	b := m.Settings.Backup
	signer, err := backup.Signer(m.Settings)
	if err != nil {
		return nil, err
	}

	in, err := newPlace(b)
	if err != nil {
		return nil, err
	}

	f := newFolder(in, m.Settings.Cluster, signer)
	c, err := m.openCatalogue(ctx, f)
	if err != nil {
		return nil, err
	}

	f.removeUnfinished(ctx, f.prefix+"-", f.partial(m.Settings.Node))
	f.settle(ctx, &c)
	// An administrator may have lowered the option keep: remove the oldest backups beyond that
	// number.
	if _, err := f.removeOldest(ctx, &c, b.Keep); err != nil {
		return nil, err
	}

	sent, file, err := m.archive(ctx, f)
	if err != nil {
		return nil, fmt.Errorf("write the backup to %s: %w", f, err)
	}
	defer sent.abandon()

	if err := m.renewClaim(); err != nil {
		return nil, err
	}

	// The catalogue names the file before it exists. So a process that dies here leaves no file
	// that nobody would ever remove.
	c.Files = append(c.Files, entry{*file, true})
	if err := f.writeCatalogue(ctx, c); err != nil {
		return nil, err
	}

	if err := sent.publish(); err != nil {
		return nil, fmt.Errorf("put the backup in place: %w", err)
	}

	f.settle(ctx, &c)
	_, err = f.removeOldest(ctx, &c, b.Keep)
	return file, errors.Join(f.writeCatalogue(ctx, c), err)
}

// openCatalogue reads the catalogue. If the place has no catalogue although this node has written
// there before, it returns an error.
func (m *maker) openCatalogue(ctx context.Context, f folder) (catalogue, error) {
	r, err := readRecord(m.Settings)
	if err != nil {
		return catalogue{}, err
	}
	c, fresh, err := f.catalogue(ctx)
	if err != nil {
		return c, err
	}
	if fresh && r.Targets[m.Settings.Node] == f.String() {
		return c, fmt.Errorf("%s is not there, and was when the last backup was written: "+
			"is something mounted at %s no more? If it is another place on purpose: %s",
			f.pathOf(f.cataloguePath()), f, f.renewalCommand(f.cataloguePath()))
	}
	return c, nil
}

// archive writes the backup under a temporary name. The caller publishes the returned upload.
func (m *maker) archive(ctx context.Context, f folder) (upload, *status.BackupFile, error) {
	keys, err := m.Settings.Backup.Keys()
	if err != nil {
		return nil, nil, err
	}

	began := m.now().UTC().Truncate(time.Second)
	name, err := f.freeName(ctx, began)
	if err != nil {
		return nil, nil, err
	}

	w, err := f.create(ctx, name, f.partial(m.Settings.Node))
	if err != nil {
		return nil, nil, err
	}

	digest := sha256.New()
	sum, err := backup.Write(ctx, io.MultiWriter(&counter{w, &m.moved}, digest),
		backup.Options{Settings: m.Settings, ConfigPath: m.ConfigPath, Version: m.Version, Now: began}, keys...)
	if err == nil {
		err = w.finish()
	}

	if err != nil {
		w.abandon()
		return nil, nil, err
	}

	return w, &status.BackupFile{
		Name:   name,
		Node:   m.Settings.Node,
		To:     f.String(),
		Time:   began,
		Bytes:  m.moved.Load(),
		Files:  sum.Files,
		SHA256: hex.EncodeToString(digest.Sum(nil)),
		Signer: sum.Signer,
	}, nil
}

// recordOutcome writes the outcome to the record and releases the claim.
func (m *maker) recordOutcome(file *status.BackupFile, err error) Outcome {
	out := Outcome{Kind: Made}
	if err != nil {
		out.Text = briefError(err)
	}

	if file == nil {
		out.Kind = Failed
	}

	werr := changeRecord(m.Settings, func(r *record) error {
		if r.Claim == nil || r.Claim.Life != m.life {
			return errLost
		}

		r.Claim = nil
		if file != nil {
			r.Last, r.Failure = file, nil
			if r.Targets == nil {
				r.Targets = map[string]string{}
			}
			r.Targets[m.Settings.Node] = file.To
		}

		if out.Text != "" {
			r.Failure = &status.BackupFailure{
				Node:  m.Settings.Node,
				Time:  m.now().UTC().Truncate(time.Second),
				Cause: out.Text,
			}
		}

		return nil
	})
	if werr != nil && out.Text == "" {
		out.Text = briefError(werr)
	}

	return out
}

func briefError(err error) string { return printable.Brief(err.Error(), maxCause) }

// counter is a writer that counts the bytes.
type counter struct {
	w io.Writer
	n *atomic.Int64
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n.Add(int64(n))
	return n, err
}
