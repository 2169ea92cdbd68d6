package observe

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"saltern/supervisor/internal/probe"
	"saltern/supervisor/settings"
	"saltern/test/await"
	"saltern/test/baddisk"
)

// nodeOn returns the settings of a node with its folders below dir.
func nodeOn(t *testing.T, dir string) *settings.Settings {
	t.Helper()
	cfg := settings.Default("n1")
	cfg.DataDir = dir
	cfg.RuntimeDir = t.TempDir()
	cfg.Storage.Path = filepath.Join(dir, "shared")
	for _, d := range []string{cfg.NodeDir(), cfg.AuditDir()} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return &cfg
}

// watched runs the watches of a node, often, and returns what is found now.
func watched(t *testing.T, cfg *settings.Settings) (found func() string) {
	list := newFolders(cfg)
	for _, f := range list {
		f.Every = 20 * time.Millisecond
		f.Takes = 500 * time.Millisecond
	}

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		runFolders(ctx, list)
	}()

	t.Cleanup(func() {
		cancel()
		<-ended
	})

	return func() string {
		var words []string
		for path, err := range unwritable(list) {
			f := probe.FileFinding(path, err)
			words = append(words, fmt.Sprintf("%s %s: %s", f.Code, f.Subject, f.Cause))
		}
		return strings.Join(words, " | ")
	}
}

// TestFoldersOfBadDisk: what becomes of a disk is a finding in the right words, and ends.
// (Finding F4: statfs was all that was asked.)
func TestFoldersOfBadDisk(t *testing.T) {
	for _, c := range []struct {
		name, kind string
		harm, mend func(*baddisk.Disk)
		want       []string // code and words
	}{
		{"XFS has shut down", baddisk.XFS, (*baddisk.Disk).Break, (*baddisk.Disk).Repair,
			[]string{"SCA-401", "input/output error", "journalctl -k"}},
		{"ext4 has given up", baddisk.Ext4, (*baddisk.Disk).Break, (*baddisk.Disk).Repair,
			[]string{"SCA-401", "journalctl -k"}},
		{"read-only", baddisk.Ext4, (*baddisk.Disk).ReadOnly, (*baddisk.Disk).Repair,
			[]string{"SCA-401", "read-only file system", "mounted so"}},
		{"full", baddisk.Ext4, (*baddisk.Disk).Fill, (*baddisk.Disk).Empty,
			[]string{"SCA-402", "no space left on device"}},
		{"hangs", baddisk.XFS, (*baddisk.Disk).Freeze, (*baddisk.Disk).Thaw,
			[]string{"SCA-401", "the disk does not answer"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			disk := baddisk.New(t, c.kind)
			found := watched(t, nodeOn(t, disk.Dir))
			await.Holds(t, 100*time.Millisecond, "nothing is wrong", func() bool { return found() == "" })
			c.harm(disk)
			await.That(t, "the finding", func() bool { return found() != "" })

			for _, word := range append(c.want, " "+disk.Dir+": ") {
				if got := found(); !strings.Contains(got, word) {
					t.Errorf("%q is not in %q", word, got)
				}
			}

			c.mend(disk)
			await.That(t, "the end", func() bool { return found() == "" })
		})
	}
}

// TestFoldersTakeTurns: a folder of several that takes no writes is found, and stays found while
// others are tried; one that was never made is none.
func TestFoldersTakeTurns(t *testing.T) {
	cfg := nodeOn(t, t.TempDir())
	f := newFolders(cfg)[0]
	if err := errors.Join(os.RemoveAll(cfg.NodeDir()), os.RemoveAll(cfg.AuditDir()),
		os.WriteFile(cfg.AuditDir(), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(f.paths, cfg.AuditDir()) {
		t.Fatalf("not tried: %q", f.paths)
	}

	for range f.paths {
		_ = f.tryWrites()
	}

	for range f.paths {
		if err := f.tryWrites(); !errors.Is(err, syscall.ENOTDIR) {
			t.Errorf("got %v", err)
		}
	}

	if err := errors.Join(os.Remove(cfg.AuditDir()), os.Mkdir(cfg.AuditDir(), 0o700)); err != nil {
		t.Fatal(err)
	}

	for range f.paths {
		if err := f.tryWrites(); err != nil {
			t.Errorf("it is mended: %v", err)
		}
	}

	left, err := filepath.Glob(filepath.Join(cfg.DataDir, "*", ".*"))
	if len(left) != 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}

// TestFoldersThatNodesShare: nodes that try a directory of all of them at one moment do not
// find a fault with it.
func TestFoldersThatNodesShare(t *testing.T) {
	shared := t.TempDir()
	var all sync.WaitGroup
	for _, name := range []string{"n1", "n2", "n3"} {
		cfg := nodeOn(t, t.TempDir())
		cfg.Node = name
		cfg.Storage.Path = shared
		if err := os.MkdirAll(cfg.SharedNodesDir(), 0o700); err != nil {
			t.Fatal(err)
		}

		list := newFolders(cfg)
		f := list[len(list)-1]
		if f.paths[0] != cfg.SharedNodesDir() {
			t.Fatalf("it is tried in %q", f.paths)
		}

		all.Go(func() {
			for range 200 {
				if err := f.tryWrites(); err != nil {
					t.Errorf("%s: %v", name, err)
					return
				}
			}
		})
	}

	all.Wait()
}

// TestFoldersByFileSystem: the shared volume is never touched by this process, and what may hang
// apart is tried apart.
func TestFoldersByFileSystem(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*settings.Settings)
		want   string
	}{
		"default":          {func(*settings.Settings) {}, "/d | /run/x | /srv/cluster/nodes"},
		"directory inside": {func(s *settings.Settings) { s.Storage.Path = "/d/shared" }, "/d | /run/x"},
		"volume": {func(s *settings.Settings) {
			s.Storage.Kind = settings.VolumeStorage
			s.Storage.Bricks = "/d/bricks"
		}, "/d | /run/x"},
		"bricks apart": {func(s *settings.Settings) {
			s.Storage.Kind = settings.VolumeStorage
			s.Storage.Bricks = "/bricks"
		}, "/d | /run/x | /bricks"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := settings.Default("n1")
			cfg.DataDir = "/d"
			cfg.RuntimeDir = "/run/x"
			cfg.Storage.Path = "/srv/cluster"
			c.change(&cfg)
			var names []string
			for _, f := range newFolders(&cfg) {
				names = append(names, f.paths[0])
				for _, p := range f.paths {
					if cfg.OnVolume() && strings.HasPrefix(p, cfg.Storage.Path) {
						t.Errorf("%s is on the volume", p)
					}
				}
			}

			if got := strings.Join(names, " | "); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}
