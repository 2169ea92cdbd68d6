package backup

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"saltern/internal/room"
	"saltern/test/smalldisk"
)

// A backup that has no room is not restored, leaves nothing, and room for everybody else
// (finding 17 of the second audit).
func TestRestoreKeepsRoom(t *testing.T) {
	r, i := passphrase(t, "p")
	var many []tar.Header
	for n := range 600 {
		many = append(many,
			tar.Header{Name: fmt.Sprintf("srv/salt/%d%s/f", n, strings.Repeat("/d", 15)), Typeflag: tar.TypeReg})
	}

	for name, entries := range map[string][]tar.Header{
		"one large file": {{Name: "srv/salt/a", Typeflag: tar.TypeReg, Size: 24 << 20}},
		"many folders":   many,
	} {
		t.Run(name, func(t *testing.T) {
			to := node(t)
			to.Storage.Path = filepath.Join(smalldisk.Mount(t, 20, 5000), "cluster")
			text := hostile(t, r, `{"format":1}`, entries...)
			_, _, err := Restore(t.Context(), bytes.NewReader(text), Target{Settings: to, Stamp: "a"}, i)
			if !errors.Is(err, room.ErrFull) || !strings.Contains(err.Error(), "nothing was changed") {
				t.Errorf("%v", err)
			}

			if got := contents(t, to); len(got) != 0 {
				t.Errorf("there is %d", len(got))
			}

			if bytes, files := smalldisk.Free(t, to.Storage.Path); bytes < 19<<20 || files < 4900 {
				t.Errorf("left behind: %d bytes and %d files are free", bytes, files)
			}
		})
	}
}
