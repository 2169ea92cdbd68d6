package backup

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"saltern/test/check"
)

// TestHistoryOnly: the history of a backup comes to a node that has minions and a history of its own, whose
// files stay. Nothing else of the backup does.
func TestHistoryOnly(t *testing.T) {
	source := full(t)
	r, i := passphrase(t, "correct horse")
	var archive bytes.Buffer
	_, err := Write(t.Context(), &archive, options(source, true), r)
	check.Must(t, err)

	for _, cluster := range []bool{false, true} {
		to := node(t)
		to.Peering.Enabled = cluster
		write(t, filepath.Join(to.SharedPKIDir(), "minions", "web9"), "key of web9", 0o644)
		write(t, filepath.Join(to.CacheDir(), "history", "0000000000000001.seg"), "runs of this node", 0o600)
		write(t, filepath.Join(to.CacheDir(), "history", "last-runs"), "table of this node", 0o600)
		want := contents(t, to)
		for name, text := range map[string]string{"0000000000000001.seg": "runs", "last-runs": "table"} {
			want["cache/history/restored-one-"+name] = "-rw------- " + text
		}

		_, _, err := Restore(t.Context(), bytes.NewReader(archive.Bytes()),
			Target{Settings: to, Stamp: "one", HistoryOnly: true}, i)
		check.Must(t, err)
		if got := contents(t, to); !maps.Equal(got, want) {
			t.Errorf("in a cluster: %v: got\n%v\nwant\n%v", cluster, got, want)
		}
	}
}

func TestHistoryOnlyOfABackupWithoutIt(t *testing.T) {
	r, i := passphrase(t, "correct horse")
	var archive bytes.Buffer
	_, err := Write(t.Context(), &archive, options(full(t), false), r)
	check.Must(t, err)
	_, _, err = Restore(t.Context(), &archive, Target{Settings: node(t), Stamp: "one", HistoryOnly: true}, i)
	if !errors.Is(err, errNoHistory) || !strings.Contains(err.Error(), "nothing was changed") {
		t.Error(err)
	}
}

// onWrite is a writer that calls act at each call of Write.
type onWrite struct {
	io.Writer
	act func()
}

func (w *onWrite) Write(b []byte) (int, error) {
	w.act()
	return w.Writer.Write(b)
}

// TestBackupWhileRestoredRunsAreMerged: the master takes a restored file in under a new name after the backup has
// listed the folder. The backup has the new one.
func TestBackupWhileRestoredRunsAreMerged(t *testing.T) {
	for _, merges := range []int{1, 3, 1000} {
		t.Run(fmt.Sprint(merges), func(t *testing.T) {
			s := node(t)
			dir := filepath.Join(s.CacheDir(), "history")
			path := func(number int) string { return filepath.Join(dir, fmt.Sprintf("%016d.seg", number)) }
			write(t, path(1), "runs of this node", 0o600)
			from := filepath.Join(dir, "restored-one-0000000000000001.seg")
			write(t, from, "runs of a backup", 0o600)

			number := 1
			var archive bytes.Buffer
			target := &onWrite{&archive, func() {
				if number > merges {
					return
				}
				number++
				check.Must(t, os.Rename(from, path(number)))
				from = filepath.Join(dir, fmt.Sprintf("restored-one-%016d.seg", number))
				if number <= merges {
					write(t, from, fmt.Sprint("runs of a backup ", number), 0o600)
				}
			}}
			var sum Summary
			b := &writer{ctx: t.Context(), tar: tar.NewWriter(target), sum: &sum, now: time.Now(), digest: newDigest()}
			trees := treesOf(s, true)
			err := b.writeTree(trees[slices.IndexFunc(trees, func(t tree) bool { return t.name == historyTree })])
			if merges == 1000 {
				if err == nil && number <= merges {
					t.Error("the backup lacks runs and says nothing")
				}
				return
			}
			check.Must(t, err)

			for i := range merges + 1 {
				if name := "history/" + filepath.Base(path(i+1)); !bytes.Contains(archive.Bytes(), []byte(name)) {
					t.Errorf("the backup lacks %s", name)
				}
			}
		})
	}
}

// TestKilledRestoreLeavesNothing: what a killed restore was copying comes into no backup, and the next restore
// removes it.
func TestKilledRestoreLeavesNothing(t *testing.T) {
	source := full(t)
	const left = ".restoring-restored-zero-0000000000000001.seg"
	write(t, filepath.Join(source.CacheDir(), "history", left), "half", 0o600)
	r, i := passphrase(t, "correct horse")
	var archive bytes.Buffer
	_, err := Write(t.Context(), &archive, options(source, true), r)
	check.Must(t, err)

	to := node(t)
	write(t, filepath.Join(to.CacheDir(), "history", left), "half", 0o600)
	_, _, err = Restore(t.Context(), &archive, Target{Settings: to, Stamp: "one", HistoryOnly: true}, i)
	check.Must(t, err)
	names, err := filepath.Glob(filepath.Join(to.CacheDir(), "history", "*restoring*"))
	check.Must(t, err)
	if len(names) > 0 {
		t.Errorf("left: %v", names)
	}
}
