package history

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"saltern/internal/control"
	"saltern/test/await"
	"saltern/test/check"
	"saltern/test/logged"
	"saltern/test/smalldisk"
)

// restoreInto copies the segments of a history into another one as a restore does.
func restoreInto(t *testing.T, from, to, stamp string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(from, "*"+segmentSuffix))
	check.Must(t, err)
	check.Must(t, os.MkdirAll(to, 0o700))
	for _, path := range paths {
		b, err := os.ReadFile(path)
		check.Must(t, err)
		name := control.RestoredHistory + stamp + "-" + filepath.Base(path)
		check.Must(t, os.WriteFile(filepath.Join(to, name), b, 0o600))
	}
}

// restored waits until nothing of a restore is left to be merged.
func restored(t *testing.T, s *Store) {
	t.Helper()
	await.That(t, "the restored segments are merged", func() bool {
		left, _ := filepath.Glob(filepath.Join(s.cfg.Dir, control.RestoredHistory+"*"))
		return len(left) == 0
	})
}

// TestRestoredHistory: random parts of one course of runs are in a backup and on the node that it is
// restored to. Afterwards, and after it is restored a second time, the node has each run once.
func TestRestoredHistory(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			var course model
			for i := range 900 {
				course.append(randomRun(r, i))
			}
			// Which runs each has: all up to, or from, a random one, with random gaps.
			inBackup, onNode := r.IntN(len(course)+1), r.IntN(len(course)+1)
			gaps := r.IntN(3) * 10

			source, node := t.TempDir(), t.TempDir()
			backup := open(t, Config{Dir: source})
			s := open(t, Config{Dir: node})
			var want model
			for i, run := range course {
				inBackup := i < inBackup && r.IntN(100) >= gaps
				onNode := i >= onNode && r.IntN(100) >= gaps
				if inBackup {
					check.Must(t, backup.Append(run))
				}
				if onNode {
					check.Must(t, s.Append(run))
				}
				if inBackup || onNode {
					want.append(run)
				}
			}
			check.Must(t, backup.Sync())
			check.Must(t, s.Close())

			for _, stamp := range []string{"20260301T000000Z", "20260302T000000Z"} {
				restoreInto(t, source, node, stamp)
				s = open(t, Config{Dir: node})
				restored(t, s)
				compare(t, "all runs after "+stamp, all(t, s, Filter{Returns: true}, 100), want.query(Filter{}))
				if got := s.Stats().Runs; got != len(want) {
					t.Errorf("%d runs are stored, not %d", got, len(want))
				}
				late := plainRun("late "+stamp, begin.Add(48*time.Hour))
				check.Must(t, s.Append(late))
				want.append(late)
				check.Must(t, s.Close())
			}
		})
	}
}

// TestRestoreIsInterrupted: the node ends between the two names of an adopted segment, and in the middle of a
// merge. The next start has each run once.
func TestRestoreIsInterrupted(t *testing.T) {
	source, node := t.TempDir(), t.TempDir()
	backup := open(t, Config{Dir: source})
	var want model
	for i := range 150 {
		want.append(plainRun("web", begin.Add(time.Duration(i)*time.Second)))
		check.Must(t, backup.Append(want[i]))
	}
	check.Must(t, backup.Close())

	restoreInto(t, source, node, "one")
	s := open(t, Config{Dir: node})
	check.Must(t, s.Close())
	restoreInto(t, source, node, "one")
	check.Must(t, os.MkdirAll(filepath.Join(node, mergeDir), 0o700))
	check.Must(t, os.WriteFile(filepath.Join(node, mergeDir, "0000000000000001.seg"), []byte("torn"), 0o600))
	s = open(t, Config{Dir: node})
	restored(t, s)
	compare(t, "all runs", all(t, s, Filter{Returns: true}, 100), want.query(Filter{}))
	if got := s.Stats().Runs; got != len(want) {
		t.Errorf("%d runs are stored, not %d", got, len(want))
	}
}

// TestRestoredRunsAreTheOldest: when the history is too large, restored runs go before those of this node,
// although their files are newer, also after a restart.
func TestRestoredRunsAreTheOldest(t *testing.T) {
	source, node := t.TempDir(), t.TempDir()
	backup := open(t, Config{Dir: source})
	for i := range 200 {
		check.Must(t, backup.Append(plainRun("old", begin.Add(time.Duration(i)*time.Second))))
	}
	check.Must(t, backup.Close())
	s := open(t, Config{Dir: node})
	for i := range 200 {
		check.Must(t, s.Append(plainRun("new", begin.Add(time.Hour+time.Duration(i)*time.Second))))
	}
	check.Must(t, s.Close())

	restoreInto(t, source, node, "one")
	s = open(t, Config{Dir: node})
	if got := s.Stats(); got.Runs != 400 || got.Restored != 200 {
		t.Fatalf("%+v", got)
	}
	bytes := s.Stats().Bytes
	check.Must(t, s.Close())
	s = open(t, Config{Dir: node, MaxBytes: bytes * 2 / 3})
	await.That(t, "the oldest are removed", func() bool { return s.Stats().Runs < 400 })
	if got := len(all(t, s, Filter{Minion: "new"}, 100)); got != 200 {
		t.Errorf("%d runs of this node are left, %d of the backup", got, len(all(t, s, Filter{Minion: "old"}, 100)))
	}
}

// TestRestoredFilesOfNoUse: damaged and empty files stay where they are, and the others are taken in.
func TestRestoredFilesOfNoUse(t *testing.T) {
	source, node := t.TempDir(), t.TempDir()
	backup := open(t, Config{Dir: source})
	for i := range 200 {
		check.Must(t, backup.Append(plainRun("web", begin.Add(time.Duration(i)*time.Second))))
	}
	check.Must(t, backup.Close())
	restoreInto(t, source, node, "one")
	name := func(number string) string {
		return filepath.Join(node, control.RestoredHistory+"one-"+number+segmentSuffix)
	}
	check.Must(t, os.WriteFile(name("0000000000000002"), []byte("SALTHST1"), 0o600))
	check.Must(t, os.WriteFile(name("0000000000000003"), nil, 0o600))
	check.Must(t, os.Symlink("/dev/zero", name("0000000000000009")))

	s := open(t, Config{Dir: node})
	if got := s.Stats(); got.Restored == 0 || got.Restored != uint64(got.Runs) || got.Damaged < 2 {
		t.Errorf("%+v", got)
	}
	for _, number := range []string{"0000000000000002", "0000000000000003", "0000000000000009"} {
		if _, err := os.Lstat(name(number)); err != nil {
			t.Error(err)
		}
	}
}

// TestRestoreWithoutRoom: runs of the node are not dropped for those of a backup, which wait.
func TestRestoreWithoutRoom(t *testing.T) {
	source := t.TempDir()
	node := smalldisk.Mount(t, 8, 1000)
	backup := open(t, Config{Dir: source, segmentRuns: 1000})
	s := open(t, Config{Dir: node, segmentRuns: 100})
	for i := range 400 {
		run := plainRun("web", begin.Add(time.Duration(i)*time.Second))
		run.Return = noise(8 << 10)
		if i%2 == 0 {
			check.Must(t, backup.Append(run))
		}
		if i%3 == 0 {
			check.Must(t, s.Append(run))
		}
	}
	check.Must(t, backup.Close())
	check.Must(t, s.Close())
	restoreInto(t, source, node, "one")
	free, _ := smalldisk.Free(t, node)
	check.Must(t, os.WriteFile(filepath.Join(node, "of others"), make([]byte, free-600<<10), 0o600))

	var log logged.Buffer
	s = open(t, Config{Dir: node, segmentRuns: 100, Log: slog.New(slog.NewTextHandler(&log, nil))})
	await.That(t, "the log says that the runs wait", func() bool { return strings.Contains(log.String(), "at a later start") })
	if got := s.Stats(); got.Runs != 134 || got.DroppedFull > 0 {
		t.Errorf("%+v", got)
	}
	check.Must(t, s.Close())
	check.Must(t, os.Remove(filepath.Join(node, "of others")))
	s = open(t, Config{Dir: node, segmentRuns: 100})
	restored(t, s)
	if got := s.Stats(); got.Runs != 267 || got.DroppedFull > 0 {
		t.Errorf("with room: %+v", got)
	}
}
