package jobs

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"saltern/internal/room"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
	"saltern/test/smalldisk"
)

// All jobs are those, too, whose load became a file before an upgrade, and those without a load.
func TestLayOutAllOfJobsWithoutLoad(t *testing.T) {
	cfg := Config{Dir: filepath.Join(t.TempDir(), "jobs"), SegmentBytes: 500, Files: true}
	c := open(t, cfg)
	before := FromTime(time.Now().Add(-time.Minute))
	check.Must(t, c.SaveLoad(await.Context(t), before, value.NewMap("jid", before, "fun", "f"), []string{"m1"}))
	check.Must(t, c.Close(await.Context(t)))

	cfg.Files = false
	c = open(t, cfg)
	none := FromTime(time.Now())
	for _, jid := range []string{before, none} {
		for i := range 5 {
			save(t, c, ret(jid, fmt.Sprintf("m%d", i), "x"))
		}
	}
	for range 2 {
		_, err := c.LayOutAll(await.Context(t), AllJobs)
		check.Must(t, err)
	}
	for _, jid := range []string{before, none} {
		for i := range 5 {
			if !exists(fmt.Sprintf("%s/m%d/return.p", c.files.jobDir(jid), i)) {
				t.Errorf("the return of m%d of job %s is no file", i, jid)
			}
		}
	}
}

// The files of jobs leave room for segments: on a full disk the oldest ones would make room for the files.
func TestLayOutLeavesRoom(t *testing.T) {
	for name, disk := range map[string]struct{ mib, files, size int }{
		"bytes":  {mib: 8, files: 10_000, size: 50_000},
		"inodes": {mib: 64, files: 400, size: 500},
	} {
		t.Run(name, func(t *testing.T) {
			dir := smalldisk.Mount(t, disk.mib, disk.files)
			c := open(t, Config{Dir: dir + "/jobs", SegmentBytes: 100_000, Archive: newFakeArchive()})
			var jids []string
			for i := range 100 {
				jid := FromTime(time.Now().Add(time.Duration(i-100) * time.Minute))
				jids = append(jids, jid)
				r := ret(jid, "m1", strings.Repeat("x", disk.size))
				r.Load = value.NewMap("jid", jid, "fun", "f")
				save(t, c, r)
			}
			flushed(t, c)

			for _, what := range []string{AllJobs, AllJobs, jids[99]} {
				if _, err := c.LayOutAll(await.Context(t), what); !errors.Is(err, room.ErrFull) {
					t.Fatalf("%s: %v", what, err)
				}
			}
			bytes, files := smalldisk.Free(t, dir)
			if bytes < int64(disk.mib)<<20/25 || files < int64(disk.files)/25 {
				t.Errorf("%d bytes and %d files are left", bytes, files)
			}
			if !exists(c.files.jobDir(jids[0])+"/m1/return.p") || exists(c.files.jobDir(jids[99])) {
				t.Error("the oldest jobs are not written first")
			}
			if n := c.Stats().RemovedEarly; n > 0 {
				t.Errorf("%d segments are removed", n)
			}
		})
	}
}

// A batch has a load for each of its slices. Only the latest stays in memory.
func TestLoadsOfManySlicesTakeNoMemory(t *testing.T) {
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	loads := loadCopies{seed: newHome(nil).seed}
	content := func(i int) []byte { return append(make([]byte, 1<<20), byte(i)) }
	before := heap()
	for i := range 100 {
		loads.add(&record{kind: kindLoad, a: content(i)})
	}
	if after := heap(); after > before+8<<20 {
		t.Errorf("100 loads of 1 MiB take %d MiB", (after-before)>>20)
	}
	if !loads.has(content(0)) || !loads.has(content(99)) || loads.has(content(100)) || loads.latest.a[1<<20] != 99 {
		t.Error("the loads are not known")
	}
}
