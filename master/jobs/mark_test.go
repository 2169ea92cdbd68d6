package jobs

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
)

// TestFolderOfSomebodyElseGetsJIDFile: Salt's clean_old_jobs removes the folder of a job without a jid file at once, with
// all returns. Others may have made the folder first.
func TestFolderOfSomebodyElseGetsJIDFile(t *testing.T) {
	made := map[string]func(dir string) error{
		"state of a batch": func(dir string) error { return os.WriteFile(dir+"/.batch.p", []byte("\x80"), 0o600) },
		"killed at once":   func(string) error { return nil },
		"empty jid file":   func(dir string) error { return os.WriteFile(dir+"/jid", nil, 0o600) },
		"end time":         func(dir string) error { return os.WriteFile(dir+"/endtime", []byte("x"), 0o600) },
		"return of Salt's": func(dir string) error { return os.Mkdir(dir+"/m9", 0o700) },
	}
	first := map[string]func(c *Local, jid string) error{
		"load": func(c *Local, jid string) error {
			return c.SaveLoad(await.Context(t), jid, value.NewMap("jid", jid, "fun", "f"), []string{"m1"})
		},
		"return": func(c *Local, jid string) error {
			r := ret(jid, "m1", "x")
			r.Load = value.NewMap("jid", jid, "fun", "f")
			_, err := c.SaveReturn(await.Context(t), r)
			return err
		},
		"minions of a syndic": func(c *Local, jid string) error {
			return c.AddMinions(await.Context(t), jid, []string{"m1"}, "syndic")
		},
		"end time": func(c *Local, jid string) error { return c.UpdateEndtime(await.Context(t), jid, "now") },
		"nocache": func(c *Local, jid string) error {
			_, err := c.Prep(await.Context(t), jid, true)
			return err
		},
	}

	at := time.Now().Add(-time.Hour)
	for mode, inFiles := range map[string]bool{"segments": false, "files": true} {
		c := open(t, Config{Files: inFiles, Now: func() time.Time { return at }})
		jids := NewIDs(c.cfg.Now)
		for maker, makeFirst := range made {
			for record, save := range first {
				t.Run(mode+"/"+maker+"/"+record, func(t *testing.T) {
					jid := jids.New()
					dir := c.files.jobDir(jid)
					check.Must(t, os.MkdirAll(dir, 0o755))
					check.Must(t, makeFirst(dir))
					check.Must(t, save(c, jid))
					flushed(t, c)
					_, err := c.LayOutAll(await.Context(t), jid)
					check.Must(t, err)

					b, err := os.ReadFile(dir + "/jid")
					if err != nil || string(b) != jid {
						t.Fatalf("jid file: %q, %v", b, err)
					}
					if st, err := os.Stat(dir + "/jid"); err != nil || st.ModTime().Sub(at).Abs() > time.Second {
						t.Errorf("the job seems to be of %v, not of %v", st.ModTime(), at)
					}
				})
			}
		}
	}
}

// TestFoldersOfEarlierVersionsGetJIDFiles: an earlier version has written all files of a job but that.
func TestFoldersOfEarlierVersionsGetJIDFiles(t *testing.T) {
	for name, mend := range map[string]func(c *Local) error{
		"jobs.files": func(c *Local) error {
			_, err := c.LayOutAll(await.Context(t), AllJobs)
			return err
		},
		"clean": func(c *Local) error {
			_, err := c.Clean(await.Context(t), 24*time.Hour)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := open(t, Config{})
			jid := FromTime(time.Now())
			check.Must(t, c.SaveLoad(await.Context(t), jid, value.NewMap("jid", jid, "fun", "f"), []string{"m1"}))
			save(t, c, ret(jid, "m1", "x"))
			flushed(t, c)
			_, err := c.LayOutAll(await.Context(t), AllJobs)
			check.Must(t, err)
			dir := c.files.jobDir(jid)
			check.Must(t, os.Remove(dir+"/jid"))
			check.Must(t, os.WriteFile(dir+"/.batch.p", []byte("\x80"), 0o600))

			check.Must(t, mend(c))
			if b, err := os.ReadFile(dir + "/jid"); err != nil || string(b) != jid {
				t.Errorf("jid file: %q, %v", b, err)
			}
		})
	}
}

// TestJIDFileGoesLast: what comes while Clean removes the copies of a job, such as the state of a batch, stays with it.
func TestJIDFileGoesLast(t *testing.T) {
	c := open(t, Config{})
	dir := filepath.Join(c.cfg.Dir, "ab", "cd")
	check.Must(t, c.files.markJob(dir, jid1, 0))
	check.Must(t, os.WriteFile(dir+"/"+loadFile, nil, 0o600))
	names, err := readNames(dir)
	check.Must(t, err)
	check.Must(t, os.WriteFile(dir+"/.batch.p", nil, 0o600))
	c.files.removeCopies(dir, names)
	if !exists(dir+"/jid") || !exists(dir+"/.batch.p") || exists(dir+"/"+loadFile) {
		t.Error("the wrong files are left")
	}

	check.Must(t, os.Remove(dir+"/.batch.p"))
	c.files.removeCopies(dir, names)
	if exists(filepath.Dir(dir)) {
		t.Error("an empty folder is left")
	}
}
