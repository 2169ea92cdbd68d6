package backup

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"saltern/test/check"
)

// While a backup runs, the master renames the newest segment, and gives back what it has allocated.
func TestBackupOfASegmentThatTheMasterEnds(t *testing.T) {
	dir := t.TempDir()
	segment := filepath.Join(dir, "0000000000000001")
	write(t, segment+".log", "returns", 0o600)
	entries, err := os.ReadDir(dir)
	check.Must(t, err)
	check.Must(t, os.Rename(segment+".log", segment+".kept"))
	root, err := os.OpenRoot(dir)
	check.Must(t, err)
	defer root.Close()

	for _, listedBoth := range []bool{false, true} {
		var archive bytes.Buffer
		b := &writer{ctx: t.Context(), tar: tar.NewWriter(&archive), sum: &Summary{}, digest: newDigest()}
		journal := tree{name: journalTree}
		if listedBoth {
			kept, err := os.ReadDir(dir)
			check.Must(t, err)
			check.Must(t, b.writeEntry(root, journal, kept[0].Name(), kept[0]))
		}
		check.Must(t, b.writeEntry(root, journal, entries[0].Name(), entries[0]))
		check.Must(t, b.tar.Close())

		var names []string
		for r := tar.NewReader(&archive); ; {
			h, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			check.Must(t, err)
			names = append(names, h.Name)
		}
		if got := strings.Join(names, " "); got != "jobs.journal/0000000000000001.kept" {
			t.Errorf("listed both: %v: the backup has %q", listedBoth, got)
		}
	}
}

// A backup comes to a node whose master has segments with the same numbers.
func TestRestoredSegmentsReplaceNone(t *testing.T) {
	source := full(t)
	mark := strings.Repeat("m", 24)
	write(t, filepath.Join(source.CacheDir(), "jobs.journal", "0000000000000003.log"), mark+"before  ", 0o600)
	r, i := passphrase(t, "correct horse")
	var archive bytes.Buffer
	_, err := Write(t.Context(), &archive, options(source, true), r)
	check.Must(t, err)

	to := node(t)
	journal := filepath.Join(to.CacheDir(), "jobs.journal")
	// The same segment, into which the master goes on writing: it has its size from the start.
	write(t, filepath.Join(journal, "0000000000000003.log"), mark+"and then", 0o600)
	write(t, filepath.Join(journal, "0000000000000001.log"), "of this node", 0o600)
	write(t, filepath.Join(journal, "0000000000000002.kept"), "of this node, too", 0o600)
	_, _, err = Restore(t.Context(), &archive, Target{Settings: to, Stamp: "one"}, i)
	check.Must(t, err)

	all := map[string]bool{}
	entries, err := os.ReadDir(journal)
	check.Must(t, err)
	numbers := map[string]bool{}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(journal, e.Name()))
		check.Must(t, err)
		all[string(b)] = true
		number := strings.TrimSuffix(e.Name(), filepath.Ext(e.Name()))
		if numbers[number] {
			t.Errorf("the number %s is there twice", number)
		}
		numbers[number] = true
	}
	for _, want := range []string{"of this node", "of this node, too", "returns", "latest returns", mark + "before  ",
		mark + "and then"} {
		if !all[want] {
			t.Errorf("%q is gone: %v", want, entries)
		}
	}
}

// shrinking truncates a file when the header of its entry is written.
type shrinking struct {
	io.Writer
	path string
}

func (s shrinking) Write(p []byte) (int, error) {
	if err := os.Truncate(s.path, 7); err != nil {
		return 0, err
	}
	return s.Writer.Write(p)
}

func TestBackupOfASegmentThatShrinks(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "0000000000000001.log")
	write(t, path, "returns"+strings.Repeat("\x00", 100<<10), 0o600)
	entries, err := os.ReadDir(dir)
	check.Must(t, err)
	root, err := os.OpenRoot(dir)
	check.Must(t, err)
	defer root.Close()

	var archive bytes.Buffer
	b := &writer{ctx: t.Context(), tar: tar.NewWriter(shrinking{&archive, path}), sum: &Summary{}, digest: newDigest()}
	check.Must(t, b.writeEntry(root, tree{name: journalTree}, entries[0].Name(), entries[0]))
	check.Must(t, b.tar.Close())
	r := tar.NewReader(&archive)
	_, err = r.Next()
	check.Must(t, err)
	content, err := io.ReadAll(r)
	check.Must(t, err)
	if got := string(bytes.TrimRight(content, "\x00")); got != "returns" {
		t.Errorf("the backup has %q", got)
	}
}
