package tarball

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

func TestWrite(t *testing.T) {
	modified := time.Unix(1_800_000_000, 0)
	members := func() []Member {
		return []Member{
			{Name: "b.ovf", Size: 5, Reader: strings.NewReader("hello")},
			{Name: "a.vmdk", Size: 0, Reader: strings.NewReader("")},
		}
	}

	var archives [2][]byte
	for i := range archives {
		out := filepath.Join(t.TempDir(), "out")
		if err := Write(out, members(), modified); err != nil {
			t.Fatal(err)
		}
		archives[i], _ = os.ReadFile(out)
	}
	if !bytes.Equal(archives[0], archives[1]) {
		t.Error("two archives of the same files differ")
	}

	r := tar.NewReader(bytes.NewReader(archives[0]))
	for _, m := range members() {
		h, err := r.Next()
		if err != nil || h.Name != m.Name || h.Size != m.Size || !h.ModTime.Equal(modified) {
			t.Fatalf("%+v %v, want %s", h, err, m.Name)
		}
	}
	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("there is more: %v", err)
	}
}

// TestFailureLeavesNothing: an archive that cannot be finished replaces none, and leaves no part.
func TestFailureLeavesNothing(t *testing.T) {
	broken := errors.New("broken")
	for name, m := range map[string]Member{
		"unreadable": {Name: "a", Size: 3, Reader: iotest.ErrReader(broken)},
		"too short":  {Name: "a", Size: 3, Reader: strings.NewReader("a")},
		"too long":   {Name: "a", Size: 3, Reader: strings.NewReader("abcd")},
	} {
		t.Run(name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "out")
			if err := os.WriteFile(out, []byte("before"), 0o600); err != nil {
				t.Fatal(err)
			}

			if err := Write(out, []Member{m}, time.Now()); err == nil {
				t.Error("no error")
			}
			if text, err := os.ReadFile(out); err != nil || string(text) != "before" {
				t.Errorf("%q %v", text, err)
			}
			if _, err := os.Stat(out + ".part"); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the part is there: %v", err)
			}
		})
	}
}
