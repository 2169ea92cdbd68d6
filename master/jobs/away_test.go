package jobs

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"saltern/master/value"
	"saltern/test/check"
)

// A master that was away for longer than jobs are kept brings nothing back that the others have removed, whoever chose
// the id of the job. Its own history keeps what it alone has taken, and it gets the jobs of the meantime.
func TestMasterThatWasAwayForLongerThanJobsAreKept(t *testing.T) {
	t.Run("segments", func(t *testing.T) { comeBackLate(t, false) })
	t.Run("files", func(t *testing.T) { comeBackLate(t, true) })
}

func comeBackLate(t *testing.T, files bool) {
	t.Parallel()
	const keep = 24 * time.Hour
	ctx := context.Background()
	begin := time.Now()
	shared, dir := t.TempDir(), t.TempDir()
	archive := newFakeArchive()
	settings := func(dir string) Config { return Config{Dir: filepath.Join(dir, "jobs"), Files: files} }
	third := func(dir string, now time.Time) *fellow {
		cfg := settings(dir)
		cfg.Archive = archive
		return memberOf(t, "10.0.0.3", shared, cfg, now, keep)
	}
	a := memberOf(t, "10.0.0.1", shared, settings(t.TempDir()), begin, keep)
	b := memberOf(t, "10.0.0.2", shared, settings(t.TempDir()), begin, keep)
	c := third(dir, begin)
	a.peers.to = []*Cluster{b.Cluster, c.Cluster}
	c.peers.to = []*Cluster{a.Cluster, b.Cluster}

	usual, ahead := FromTime(begin), FromTime(begin.AddDate(1, 0, 0)) // a caller has chosen the second
	returned := func(jid, id string) Return {
		return ReturnOf(value.NewMap("jid", jid, "id", id, "fun", "test.ping", "return", id, "retcode", int64(0), "success", true))
	}
	old := []string{usual, ahead}
	for _, jid := range old {
		check.Must(t, c.SaveLoad(ctx, jid, value.NewMap("jid", jid, "fun", "test.ping", "tgt", "*"), []string{"m1", "m2"}))
		_, err := a.SaveReturn(ctx, returned(jid, "m1"))
		check.Must(t, err)
		_, err = c.Local.SaveReturn(ctx, returned(jid, "alone")) // its machine dies before anybody else has it
		check.Must(t, err)
	}
	flushed(t, c.Local)
	image := crashed(t, dir)
	c.end(t)

	const away = keep + time.Hour
	for _, f := range []*fellow{a, b} {
		f.wait(away)
		_, err := f.Clean(ctx, keep)
		check.Must(t, err)
	}
	young := FromTime(begin.Add(away))
	a.peers.to = []*Cluster{b.Cluster}
	_, err := a.SaveReturn(ctx, returned(young, "m1"))
	check.Must(t, err)
	check.Must(t, a.volume.addAndWait(ctx))

	for _, run := range []string{"back", "restarted"} {
		c = third(image, begin.Add(away))
		c.handOver(t)
		check.Must(t, c.Import(ctx))
		for name, f := range map[string]*fellow{"first": a, "second": b} {
			f.wait(2 * loadComes)
			check.Must(t, f.Import(ctx))
			for _, jid := range old {
				load, err := f.Load(ctx, jid)
				check.Must(t, err)
				returns, err := f.Returns(ctx, jid)
				check.Must(t, err)
				if load != nil || returns.Len() > 0 {
					t.Errorf("%s: the %s has %v and returns of %v again", run, name, load, returns.Keys())
				}
			}
		}

		_, err := c.Clean(ctx, keep)
		check.Must(t, err)
		for _, jid := range old {
			load, _ := c.Load(ctx, jid)
			if returns, _ := c.Returns(ctx, jid); load != nil || returns.Len() > 0 {
				t.Errorf("%s: it keeps %v and returns of %v", run, load, returns.Keys())
			}
			archive.mu.Lock()
			if _, found := archive.taken[jid+" alone"]; !found {
				t.Errorf("%s: its history lacks what it alone has taken", run)
			}
			archive.mu.Unlock()
		}
		if returns, _ := c.Returns(ctx, young); returns.Map("m1") == nil {
			t.Errorf("%s: it lacks a return of the meantime", run)
		}
		c.end(t)
	}
}
