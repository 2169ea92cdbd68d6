package jobs

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"saltern/test/await"
	"saltern/test/check"
)

// spoilt are ways in which a segment cannot be read. A mode is nothing to root.
var spoilt = map[string]func(path string, whole []byte) error{
	"empty":   func(path string, _ []byte) error { return os.WriteFile(path, nil, 0o600) },
	"cut":     func(path string, whole []byte) error { return os.WriteFile(path, whole[:10], 0o600) },
	"garbage": func(path string, _ []byte) error { return os.WriteFile(path, bytes.Repeat([]byte("x"), 5000), 0o600) },
	"magic":   func(path string, whole []byte) error { return os.WriteFile(path, changed(whole, 3), 0o600) },
	"later":   func(path string, whole []byte) error { return os.WriteFile(path, changed(whole, 7), 0o600) },
	"mark": func(path string, whole []byte) error {
		return os.WriteFile(path, withoutIndex(changed(whole, 12)), 0o600)
	},
	"head and first record": func(path string, whole []byte) error {
		return os.WriteFile(path, withoutIndex(changed(changed(whole, 12), segmentHead)), 0o600)
	},
	"folder":    func(path string, _ []byte) error { return os.Mkdir(path, 0o700) },
	"not empty": func(path string, _ []byte) error { return os.MkdirAll(path+"/x", 0o700) },
	"link":      func(path string, _ []byte) error { return os.Symlink("/etc/passwd", path) },
	"loop":      func(path string, _ []byte) error { return os.Symlink(path, path) },
	"sparse": func(path string, whole []byte) error {
		return cmp.Or(os.WriteFile(path, withoutIndex(whole), 0o600), os.Truncate(path, 1<<40))
	},
}

func changed(b []byte, at int) []byte {
	b = bytes.Clone(b)
	b[at]++
	return b
}

func withoutIndex(b []byte) []byte { return b[:len(b)-1] }

// A segment that cannot be read, whatever is wrong with it, is named once, costs no other and no new return, stays until
// its jobs are old, and goes then.
func TestSegmentThatCannotBeRead(t *testing.T) {
	for name, spoil := range spoilt {
		for _, suffix := range []string{keptSuffix, segmentSuffix} {
			t.Run(name+suffix, func(t *testing.T) { serveBeside(t, suffix, spoil, name == "not empty") })
		}
	}
}

func serveBeside(t *testing.T, suffix string, spoil func(path string, whole []byte) error, stays bool) {
	clock := &fakeClock{now: time.Now()}
	var log logText
	cfg := Config{Dir: filepath.Join(t.TempDir(), "jobs"), Now: clock.Now}
	openAgain := func() *Local {
		c, err := Open(cfg, slog.New(slog.NewTextHandler(&log, nil)))
		check.Must(t, err)
		return c
	}

	ctx := await.Context(t)
	for i := range 3 { // a segment each
		c := openAgain()
		save(t, c, ret(jid1, fmt.Sprintf("m%d", i), i))
		check.Must(t, c.Close(ctx))
	}
	path := filepath.Join(cfg.Dir+".journal", fmt.Sprintf("%016d", 1))
	whole, err := os.ReadFile(path + keptSuffix)
	check.Must(t, err)
	check.Must(t, os.Remove(path+keptSuffix))
	path += suffix
	check.Must(t, spoil(path, whole))
	before := describe(path)

	c := openAgain()
	isFault := !(suffix == segmentSuffix && strings.HasSuffix(t.Name(), "/empty"+suffix)) // a crash leaves such a file
	for range 2 {
		got, err := c.Returns(ctx, jid1)
		check.Must(t, err)
		if got.Len() < 2 || got.Map("m1") != nil {
			t.Errorf("returns of %v", got.Keys())
		}
		if fault := c.SegmentFault(); (fault != nil) != isFault || isFault && !strings.Contains(fault.Error(), path) {
			t.Errorf("the fault is %v", fault)
		}
		if now := describe(path); isFault && now != before {
			t.Errorf("%s has become %s", before, now)
		}
		for i := range 3 {
			save(t, c, ret(FromTime(clock.Now()), fmt.Sprintf("m%d", i), "new"))
			clock.pass(time.Second)
			_, err = c.Clean(ctx, 24*time.Hour)
			check.Must(t, err)
		}
		if n := log.count("level=ERROR"); isFault && n != 1 || !isFault && n > 0 {
			t.Errorf("%d errors in the log", n)
		}

		check.Must(t, c.Close(ctx))
		log.clear()
		c = openAgain()
	}

	clock.pass(25 * time.Hour)
	log.clear()
	for range 3 {
		_, err = c.Clean(ctx, 24*time.Hour)
		check.Must(t, err)
	}
	if left := describe(path); stays != (left != "") {
		t.Errorf("%q is left", left)
	}
	if fault := c.SegmentFault(); stays != (fault != nil) {
		t.Errorf("the fault is %v", fault)
	}
	if n := log.count("level=ERROR"); stays && n != 1 || !stays && n > 0 {
		t.Errorf("%d errors in the log after the cleaning", n)
	}
	check.Must(t, c.Close(ctx))
}

// describe returns what a file is, or "" if it is not there.
func describe(path string) string {
	st, err := os.Lstat(path)
	if err != nil {
		return ""
	}
	return fmt.Sprint(st.Mode(), st.Size(), st.ModTime())
}

// A return that comes again when the first is too old to be found is stored, although the segment of the first stays.
func TestReturnThatComesAgainWhenItIsOld(t *testing.T) {
	clock := &fakeClock{now: time.Now()}
	c := open(t, Config{Now: clock.Now})
	save(t, c, ret(jid1, "m1", "first"))
	clock.pass(time.Hour)
	save(t, c, ret(jid1, "m2", "young"))
	clock.pass(23*time.Hour + 30*time.Minute)
	ctx := await.Context(t)
	_, err := c.Clean(ctx, 24*time.Hour)
	check.Must(t, err)
	for id, again := range map[string]bool{"m1": true, "m2": false} {
		stored, err := c.SaveReturn(ctx, ret(jid1, id, "again"))
		if !again && errors.Is(err, ErrOtherReturn) {
			err = nil
		}
		check.Must(t, err)
		if stored != again {
			t.Errorf("the return of %s is stored: %v", id, stored)
		}
	}
	got, _ := c.Returns(ctx, jid1)
	if got.Map("m1").Str("return") != "again" || got.Map("m2").Str("return") != "young" {
		t.Errorf("returns %v", got)
	}
}

// TestDamagedMarkOfFirstRecord: it costs that record alone.
func TestDamagedMarkOfFirstRecord(t *testing.T) {
	cfg := Config{Dir: filepath.Join(t.TempDir(), "jobs")}
	openAgain := func() *Local {
		c, err := Open(cfg, slog.New(slog.DiscardHandler))
		check.Must(t, err)
		return c
	}

	ctx := await.Context(t)
	c := openAgain()
	for i := range 3 {
		save(t, c, ret(jid1, fmt.Sprintf("m%d", i), i))
	}
	check.Must(t, c.Close(ctx))
	paths, err := filepath.Glob(filepath.Join(cfg.Dir+".journal", "*"+keptSuffix))
	check.Must(t, err)
	if len(paths) != 1 {
		t.Fatalf("segments %v", paths)
	}
	whole, err := os.ReadFile(paths[0])
	check.Must(t, err)
	check.Must(t, os.WriteFile(paths[0], withoutIndex(changed(whole, segmentHead)), 0o600))

	c = openAgain()
	got, err := c.Returns(ctx, jid1)
	check.Must(t, err)
	if got.Len() != 2 || got.Map("m2") == nil {
		t.Errorf("returns of %v", got.Keys())
	}
	if c.SegmentFault() == nil {
		t.Error("nothing tells of the record that is lost")
	}
	check.Must(t, c.Close(ctx))
}
